// The records of a planned archive in order, with checked names and computed places, and the parts
// of the archive as torch's writer writes them, byte for byte. Each place is known as soon as the
// record is added, before a byte is written.
//
// Offsets count from the start of the archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/zip/layout.hpp"
#include "runtime/base/zip/record.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

// The caller writes, for each record in turn: local header, payload, descriptor; then one central
// entry per record, then the end records. Times are 0, so equal content gives equal bytes.

// The facts about one record that are written. Offsets count from the start of the archive.
struct EmittedRecord {
  std::string_view name;  // with the top folder; at most 65535 bytes
  std::uint64_t header_offset;
  std::uint64_t size;
  std::uint64_t stored_size;
  std::uint32_t crc32;
  Method method = Method::stored;
};

// Writes header, name, zip64 field and padding: all bytes up to the payload. Precondition: the
// layout has a place for the payload, and the padding fits 16 bits (alignment at most 32 KiB).
void emit_local_header(bytes::ByteSink& sink, const Layout& layout, const EmittedRecord& record);
// Writes the data descriptor behind the payload; nothing for an empty record.
void emit_descriptor(bytes::ByteSink& sink, const EmittedRecord& record);
void emit_central_entry(bytes::ByteSink& sink, const EmittedRecord& record);
// Writes zip64 end record, locator and end record: 98 bytes.
void emit_end(bytes::ByteSink& sink, std::uint64_t directory_offset, std::uint64_t directory_size,
              std::uint64_t record_count);

class Plan {
 public:
  // The largest alignment for the 16-bit length of extra fields after the longest ZIP64 field.
  static constexpr std::uint64_t max_alignment = 0xFFFF - 28 - Layout::padding_field_bytes + 1;

  struct Planned {
    std::uint64_t header_offset;
    std::uint64_t payload_offset;
    std::uint64_t size;
    std::uint64_t stored_size;
    std::size_t name_at;  // in the plan's text
    std::uint32_t crc32;
    std::uint16_t name_length;
    Method method;
  };

  // Fails with invalid_argument if the name of the top folder is empty or not one folder, or the
  // alignment is not within 1 and max_alignment.
  static Result<Plan> make(std::string_view top_folder, std::uint64_t alignment);

  // Reserves memory for `count` records with names of about `name_bytes` in all.
  void reserve(std::size_t count, std::size_t name_bytes);

  // Appends a record. Fails with invalid_argument, and adds nothing, if the name is empty, too
  // long, not UTF-8, not a relative path, or repeats one without regard to the case of ASCII
  // letters; with limit_exceeded beyond the numbers of the format.
  Result<std::size_t> add(std::string_view name, std::uint64_t size, std::uint64_t stored_size,
                          Method method);
  Result<std::size_t> add(std::string_view name, std::uint64_t size) {
    return add(name, size, size, Method::stored);
  }

  std::span<const Planned> records() const noexcept { return records_; }
  // Returns the name without the top folder; valid until the next add().
  std::string_view name(std::size_t index) const noexcept;
  std::string_view top_folder() const noexcept { return {text_.data(), top_length_}; }
  std::uint64_t alignment() const noexcept { return layout_.alignment; }
  bool has(std::string_view name) const;
  // Sets the CRC of the content before it is deflated; 0 if it is not computed.
  void set_crc32(std::size_t index, std::uint32_t crc32) noexcept { records_[index].crc32 = crc32; }

  // The offset of the next record's header, or of the directory.
  std::uint64_t end() const noexcept { return end_; }
  // The size of the whole archive if no more records are added.
  std::uint64_t archive_bytes() const noexcept { return end_ + directory_bytes_ + tail_bytes; }

  void emit_local_header(bytes::ByteSink& sink, std::size_t index) const;
  void emit_descriptor(bytes::ByteSink& sink, std::size_t index) const;
  // Writes all entries and the three end records.
  void emit_directory(bytes::ByteSink& sink) const;

 private:
  static constexpr std::uint64_t tail_bytes = end64_bytes + locator_bytes + end_bytes;
  Plan() = default;
  EmittedRecord emitted(const Planned& record) const noexcept;
  // Returns false if the name exists. `number` is storage_number() of it.
  bool add_name(std::string_view name, std::uint32_t number);

  Layout layout_;
  // The top folder with its slash, then the full names of all records.
  std::string text_;
  std::size_t top_length_ = 0;
  std::vector<Planned> records_;
  // The names are those of the storages 0 to storages_ - 1 and these, in lower case.
  std::unordered_set<std::string> folded_names_;
  std::uint32_t storages_ = 0;
  bool has_storage_among_names_ = false;
  std::uint64_t end_ = 0;
  std::uint64_t directory_bytes_ = 0;
};

}  // namespace weightmap::zip
