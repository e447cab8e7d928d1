// Private copies of a few parts of a ByteSource, so that parsers neither fault nor see the file
// change between check and use, and so that neighbouring small records share one read.
//
// Not thread-safe; one object serves one open. Spans stay valid until the ReadCache is destroyed,
// or during the lifetime of the buffer from take().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap::bytes {

class ReadCache {
 public:
  // `memory` holds the copies and must outlive this object. `tail_bytes` is the size of the first
  // read at the end, where a directory is expected.
  ReadCache(const ByteSource& source, std::pmr::memory_resource& memory,
            std::uint64_t tail_bytes = first_read) noexcept
      : source_(&source), memory_(&memory), tail_bytes_(tail_bytes) {}

  std::uint64_t tail_bytes() const noexcept { return tail_bytes_; }
  std::uint64_t source_size() const noexcept { return source_->size(); }
  std::pmr::memory_resource& memory() const noexcept { return *memory_; }

  // Returns [offset, offset + length) of the source, from a window that holds all of it or by one
  // read that becomes a window. Fails with corrupt if the range leaves the source.
  Result<std::span<const std::byte>> bytes(std::uint64_t offset, std::uint64_t length);

  // Like bytes(), for a range with the end of an existing window: reads only the missing part.
  Result<std::span<const std::byte>> extend_back(std::uint64_t offset, std::uint64_t length);

  // Fills `out` from `offset`, from a window that holds all of it or by one read that is not kept.
  // For many small scattered reads.
  Result<void> copy(std::uint64_t offset, std::span<std::byte> out);

  // Transfers ownership of the window that holds `part`, a span from this object. The window still
  // serves bytes() and copy(), so the caller keeps the buffer while this object is used.
  Buffer take(std::span<const std::byte> part) noexcept;

  std::uint64_t reads() const noexcept { return reads_; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct Window {
    std::uint64_t offset;
    std::span<const std::byte> bytes;
    Buffer owner;  // of bytes; empty once taken
  };
  const Window* find(std::uint64_t offset, std::uint64_t length) const noexcept;
  Result<void> read(std::uint64_t offset, std::span<std::byte> out);
  std::span<const std::byte> keep(std::uint64_t offset, Buffer bytes);

  const ByteSource* source_;
  std::pmr::memory_resource* memory_;
  std::uint64_t tail_bytes_;
  std::vector<Window> windows_;
  std::uint64_t reads_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace weightmap::bytes
