// The zip archive beneath a checkpoint: its records, their places and their bytes.
//
// ArchiveReader serves tools, and programs that keep their own records in a torch archive; it does
// not interpret tensors. It reads with pread, so a truncated file is an error here, never a signal.
// Const members may be called from several threads at once, and in a child after fork(). Names are
// borrowed from the reader and valid until it is destroyed; moving it is fine, and a moved-from
// reader may only be assigned to or destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/options.hpp"
#include "weightmap/record_content.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class ArchiveReader;
template <>
inline constexpr bool lends_from_itself<ArchiveReader> = true;

class WEIGHTMAP_API ArchiveReader {
 public:
  // The lowest and the highest supported version; these are torch's own bounds.
  static constexpr std::uint64_t min_version = 1;
  static constexpr std::uint64_t max_version = 10;

  struct RecordInfo {
    std::string_view name;        // without the archive's top directory: "data.pkl", "data/0"
    std::uint64_t header_offset;  // absolute offset of the local file header
    std::uint64_t stored_bytes;   // bytes in the file
    std::uint64_t size;           // bytes after inflating; == stored_bytes if not deflated
    std::uint32_t crc32;          // 0 with size > 0: the writer did not compute it
    bool deflated;
  };

  // Reads and proves the central directory. The file stays open until the reader is destroyed. Of
  // the options, only the limits apply. Fails as Checkpoint::open() does for a file that is not an
  // unambiguous zip archive. FILE//MEMBER is an archive within one; its offsets are those in FILE.
  static Result<ArchiveReader> open(const std::filesystem::path& path,
                                    const OpenOptions& options = {});

  ArchiveReader(ArchiveReader&&) noexcept;
  ArchiveReader& operator=(ArchiveReader&&) noexcept;
  ~ArchiveReader();

  // Returns the top directory of the records, without the slash: "archive", "model".
  std::string_view archive_name() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void archive_name() const&& = delete;

  // The records in directory order. Precondition of record(): index < record_count().
  std::size_t record_count() const noexcept;
  RecordInfo record(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;
  std::vector<RecordInfo> records() const& WEIGHTMAP_LIFETIMEBOUND;
  void record(std::size_t) const&& = delete;
  void records() const&& = delete;

  bool has(std::string_view name) const;
  std::optional<RecordInfo> find(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  void find(std::string_view) const&& = delete;

  // The functions below fail with not_found, naming the record, if there is none of this name; with
  // io if the file cannot be read or was truncated; with corrupt if the record's local header
  // contradicts the directory, or deflated bytes do not inflate to the stated size.

  // Returns the record's size after inflating, in bytes.
  Result<std::uint64_t> size(std::string_view name) const;
  // Returns the absolute offset of the record's local file header.
  Result<std::uint64_t> header_offset(std::string_view name) const;
  // Returns the absolute offset of the record's first byte, according to its local header, which is
  // read and compared with the directory. Repeated calls use a cache.
  Result<std::uint64_t> payload_offset(std::string_view name) const;
  // Returns the same offset without reading, by torch's padding rule and the directory, proven by
  // the neighbouring record. Fails with unsupported where the rule does not explain the record, as
  // in an archive that another tool wrote.
  Result<std::uint64_t> payload_offset_without_reading(std::string_view name) const;

  // Fills `out`, which must be exactly size(name) long, with the record's bytes, inflated if the
  // record is deflated. `threads` > 1 splits a stored record into parallel reads, at most 64.
  Result<void> read(std::string_view name, std::span<std::byte> out, unsigned threads = 1) const;
  // Returns the whole record. Fails with limit_exceeded if it is deflated and inflates to more than
  // Limits::record_bytes.
  Result<std::vector<std::byte>> read(std::string_view name) const;
  // Calls `chunk` with consecutive parts of at most `chunk_bytes` each, until it returns false or
  // the record ends. A stored record needs the memory of one chunk only.
  Result<void> read_chunks(std::string_view name, std::size_t chunk_bytes,
                           const std::function<bool(std::span<const std::byte>)>& chunk) const;
  // Returns the record's bytes, or `count` of them from `first` on, as content for an
  // ArchiveWriter. The bytes are read when they are written, so this reader must live until then.
  // The whole record is read and compared with its CRC-32 where it has one: writing fails with
  // corrupt on a mismatch. Fails with invalid_argument beyond the end of the record.
  Result<RecordContent> content(std::string_view name) const;
  Result<RecordContent> content(std::string_view name, std::uint64_t first,
                                std::uint64_t count) const;
  // Reads the record and compares its CRC-32. Returns true if it matches, false if the writer did
  // not compute one, which is a 0 in the directory for a record that is not empty. Fails with
  // corrupt on a mismatch.
  Result<bool> verify_crc(std::string_view name) const;

  // Returns the number in the record `.data/version` or `version`. Fails with unsupported if it is
  // not in [min_version, max_version], with corrupt if it is missing or not a number.
  Result<std::uint64_t> version() const;
  // Returns the 40 digits of `.data/serialization_id`, or nullopt if the file has none.
  Result<std::optional<std::string>> serialization_id() const;

 private:
  struct WEIGHTMAP_LOCAL State;
  explicit ArchiveReader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
