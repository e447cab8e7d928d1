#include "runtime/services/fetch/into_file.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

// For the most requests that a source has on their way by itself, and some that are written.
constexpr std::uint64_t enough_buffers = 80;

// Two at least: one is received while the other one is written.
std::size_t most_buffers(std::uint64_t buffer_bytes) {
  const std::uint64_t affordable = os::memory_limit().usable() / 4 / buffer_bytes;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(affordable, 2, enough_buffers));
}

// Where in a page of the file an offset lies, the same as in a page of memory (DirectWriter).
std::uint64_t in_page(std::uint64_t offset) noexcept { return offset % os::page_bytes(); }

}  // namespace

IntoFile::IntoFile(PartFile& part, std::uint64_t chunk_bytes)
    : part_(part),
      buffer_bytes_(static_cast<std::size_t>(chunk_bytes + os::page_bytes())),
      most_buffers_(most_buffers(buffer_bytes_)) {}

// nullptr: all are in use.
Result<std::byte*> IntoFile::take_buffer() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && buffers_.size() < most_buffers_) {
    mmap::Reservation buffer(buffer_bytes_, os::large_page, mmap::Reservation::Access::write);
    if (buffer.is_empty())
      return tl::unexpected<Error>(
          os::os_error("get " + std::to_string(buffer_bytes_) + " bytes of memory", errno));
    free_.push_back(buffer.bytes().data());
    buffers_.push_back(std::move(buffer));
  }
  if (free_.empty()) return nullptr;
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

Result<std::optional<std::span<std::byte>>> IntoFile::memory_for(ByteRange range) {
  TRY_ASSIGN(std::byte* const buffer, take_buffer());
  if (buffer == nullptr) return std::nullopt;
  return std::span<std::byte>(buffer + in_page(range.offset), range.length);
}

void IntoFile::take_back(ByteRange range, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  free_.push_back(bytes.data() - in_page(range.offset));
}

}  // namespace weightmap
