#include "runtime/base/bytes/read_cache.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::bytes {

const ReadCache::Window* ReadCache::find(std::uint64_t offset,
                                         std::uint64_t length) const noexcept {
  for (const Window& window : windows_)
    if (offset >= window.offset && contains(window.bytes.size(), offset - window.offset, length))
      return &window;
  return nullptr;
}

Result<void> ReadCache::read(std::uint64_t offset, std::span<std::byte> out) {
  ++reads_;
  bytes_read_ += out.size();
  return source_->read(offset, out);
}

std::span<const std::byte> ReadCache::keep(std::uint64_t offset, Buffer bytes) {
  const std::span<const std::byte> content = std::as_const(bytes).span();
  windows_.push_back({offset, content, std::move(bytes)});
  return content;
}

Result<std::span<const std::byte>> ReadCache::bytes(std::uint64_t offset, std::uint64_t length) {
  // Checked before any allocation, so that a length beyond the source costs nothing.
  if (!contains(source_->size(), offset, length)) return leaves_source(*source_, offset, length);
  if (const Window* window = find(offset, length))
    return window->bytes.subspan(offset - window->offset, length);
  Buffer copy(length, *memory_);
  TRY(read(offset, copy.span()));
  return keep(offset, std::move(copy));
}

Result<std::span<const std::byte>> ReadCache::extend_back(std::uint64_t offset,
                                                          std::uint64_t length) {
  if (!contains(source_->size(), offset, length)) return leaves_source(*source_, offset, length);
  if (find(offset, length) != nullptr) return bytes(offset, length);
  const std::uint64_t end = offset + length;
  const auto known = std::find_if(windows_.begin(), windows_.end(), [&](const Window& window) {
    return window.offset > offset && window.offset + window.bytes.size() == end;
  });
  if (known == windows_.end()) return bytes(offset, length);
  Buffer joined(length, *memory_);
  const std::uint64_t missing = known->offset - offset;
  std::memcpy(joined.data() + missing, known->bytes.data(), known->bytes.size());
  TRY(read(offset, joined.span().first(missing)));
  return keep(offset, std::move(joined));
}

Result<void> ReadCache::copy(std::uint64_t offset, std::span<std::byte> out) {
  const Window* window = find(offset, out.size());
  if (window == nullptr) return read(offset, out);
  const auto part = window->bytes.subspan(offset - window->offset, out.size());
  std::copy(part.begin(), part.end(), out.begin());
  return {};
}

Buffer ReadCache::take(std::span<const std::byte> part) noexcept {
  for (Window& window : windows_) {
    const std::byte* const begin = window.bytes.data();
    const std::byte* const end = begin + window.bytes.size();
    if (std::less_equal<>{}(begin, part.data()) &&
        std::less_equal<>{}(part.data() + part.size(), end))
      return std::move(window.owner);
  }
  return {};
}

}  // namespace weightmap::bytes
