// What a record of an archive that is being written is filled with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

class RecordContent {
 public:
  // Fills `out` with the bytes from `offset` on; fails with what the writer passes on. Is called
  // from the thread that writes, with ranges that follow one another from 0 to the end, once each.
  using Read = std::function<Result<void>(std::uint64_t offset, std::span<std::byte> out)>;

  // Borrows the bytes, which must stay as they are until they are written.
  static RecordContent bytes(std::span<const std::byte> content) noexcept {
    return RecordContent(content.data(), content.size());
  }
  static RecordContent text(std::string_view content) noexcept {
    return bytes(std::as_bytes(std::span(content)));
  }
  // `size` bytes, asked for piece by piece, so that they need not be in memory at once.
  static RecordContent read_by(std::uint64_t size, Read read) {
    RecordContent content(nullptr, size);
    content.read_ = std::move(read);
    return content;
  }
  // `size` bytes of which none is written: a hole, which reads as zeros, or zeros where the target
  // knows no holes. The record's CRC-32 is given as "not computed".
  static RecordContent reserved(std::uint64_t size) noexcept {
    RecordContent content(nullptr, size);
    content.reserved_ = true;
    return content;
  }

  std::uint64_t size() const noexcept { return size_; }
  bool is_reserved() const noexcept { return reserved_; }
  // nullptr unless it is in memory.
  const std::byte* data() const noexcept { return data_; }
  // Empty unless it is asked for piece by piece.
  const Read& read() const noexcept { return read_; }

 private:
  RecordContent(const std::byte* data, std::uint64_t size) noexcept : data_(data), size_(size) {}

  const std::byte* data_;
  std::uint64_t size_;
  Read read_;
  bool reserved_ = false;
};

}  // namespace weightmap
