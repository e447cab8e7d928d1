// Makes small archives in memory: those that torch would write, and those that nobody should.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/plan.hpp"

namespace weightmap::test {

using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(std::string_view text) {
  const auto span = std::as_bytes(std::span(text));
  return {span.begin(), span.end()};
}

// The bytes of a literal that may contain zeros: raw("PK\3\4\0").
template <std::size_t N>
std::string_view raw(const char (&literal)[N]) {
  return {literal, N - 1};
}

// Little-endian, in place.
inline void patch(Bytes& bytes, std::size_t at, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i)
    bytes.at(at + static_cast<std::size_t>(i)) = static_cast<std::byte>(value >> (8 * i));
}

// One record after another, exactly as torch lays them out. Keeps where things are, so that a test
// can damage one field by name.
class ArchiveBuilder {
 public:
  struct Place {
    std::string name;
    std::uint64_t header;
    std::uint64_t payload;
    std::uint64_t size;
    std::uint64_t stored_size;
    std::uint32_t crc32;
    zip::Method method;
    std::size_t entry = 0;  // of its central directory entry, once finished
  };

  explicit ArchiveBuilder(std::uint64_t alignment = 64) : layout_{alignment} {}

  Bytes& bytes() { return bytes_; }
  const Place& place(std::size_t index) const { return places_.at(index); }
  std::size_t directory_offset() const { return directory_offset_; }
  std::size_t end64_offset() const { return bytes_.size() - 98; }
  std::size_t locator_offset() const { return bytes_.size() - 42; }
  std::size_t end_offset() const { return bytes_.size() - 22; }

  ArchiveBuilder& add(std::string_view name, std::string_view content) {
    const Bytes payload = to_bytes(content);
    return add_stored_as(name, payload, payload.size(), zip::Method::stored, zip::crc32(payload));
  }
  // `payload` is what stands in the file, `size` and `crc` are of the inflated content.
  ArchiveBuilder& add_stored_as(std::string_view name, std::span<const std::byte> payload,
                                std::uint64_t size, zip::Method method, std::uint32_t crc) {
    Place place{std::string(name), bytes_.size(), 0, size, payload.size(), crc, method};
    bytes::ByteSink sink(bytes_);
    zip::emit_local_header(sink, layout_, emitted(place));
    place.payload = bytes_.size();
    sink.put(payload);
    zip::emit_descriptor(sink, emitted(place));
    places_.push_back(place);
    return *this;
  }
  // As other tools write it: no padding, no descriptor, sizes in the local header.
  ArchiveBuilder& add_plain(std::string_view name, std::string_view content) {
    const Bytes payload = to_bytes(content);
    Place place{std::string(name),   bytes_.size(),      0, payload.size(), payload.size(),
                zip::crc32(payload), zip::Method::stored};
    bytes::ByteSink sink(bytes_);
    sink.u32(0x04034b50);
    sink.fill(10, '\0');
    sink.u32(place.crc32);
    sink.u32(place.stored_size);
    sink.u32(place.size);
    sink.u16(name.size());
    sink.u16(0);
    sink.text(name);
    place.payload = bytes_.size();
    sink.put(payload);
    places_.push_back(place);
    plain_.push_back(places_.size() - 1);
    return *this;
  }

  // Directory and end records.
  Bytes& finish() {
    directory_offset_ = bytes_.size();
    bytes::ByteSink sink(bytes_);
    for (Place& place : places_) {
      place.entry = bytes_.size();
      zip::emit_central_entry(sink, emitted(place));
    }
    for (std::size_t index : plain_) patch(bytes_, places_[index].entry + 8, 0, 2);
    zip::emit_end(sink, directory_offset_, bytes_.size() - directory_offset_, places_.size());
    return bytes_;
  }

  // As finish(), without the zip64 records.
  Bytes& finish_classic() {
    finish();
    bytes_.erase(bytes_.end() - 98, bytes_.end() - 22);
    return bytes_;
  }

 private:
  static zip::EmittedRecord emitted(const Place& place) {
    return {place.name, place.header, place.size, place.stored_size, place.crc32, place.method};
  }

  zip::Layout layout_;
  Bytes bytes_;
  std::vector<Place> places_;
  std::vector<std::size_t> plain_;
  std::size_t directory_offset_ = 0;
};

// What torch.save writes for storages of these contents, in this order.
inline ArchiveBuilder torch_archive(const std::vector<std::string>& storages,
                                    std::uint64_t alignment = 64) {
  ArchiveBuilder builder(alignment);
  builder.add("archive/data.pkl", "pickle").add("archive/.format_version", "1");
  builder.add("archive/.storage_alignment", std::to_string(alignment));
  builder.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < storages.size(); ++i)
    builder.add("archive/data/" + std::to_string(i), storages[i]);
  builder.add("archive/version", "3\n");
  builder.add("archive/.data/serialization_id", std::string(40, '7'));
  return builder;
}

}  // namespace weightmap::test
