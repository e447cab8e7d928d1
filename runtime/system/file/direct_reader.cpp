#include "runtime/system/file/direct_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/system/file/truncation.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::os {
namespace {

std::string refused(const std::string& why) {
  return "the file system refuses reads past the page cache (O_DIRECT): " + why;
}

std::string words_of(int error_number) { return std::generic_category().message(error_number); }

// Returns the required alignment of offset, address and length of a read; 0 if the file system has
// no direct reads. If it does not report one, a page suits every disk.
std::uint64_t alignment_of([[maybe_unused]] int descriptor) noexcept {
#ifdef STATX_DIOALIGN  // Linux 6.1
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0)
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
#endif
  return page_bytes();
}

// Returns an empty text if page alignment suffices.
std::string why_not_pages(int descriptor) {
  const std::uint64_t alignment = alignment_of(descriptor);
  if (alignment == 0) return refused("it has none for this file");
  if (page_bytes() % alignment == 0) return {};
  return refused("it wants multiples of " + std::to_string(alignment) + " bytes");
}

std::string why_not_opened(int error_number) {
  if (error_number == EINVAL) return refused(words_of(EINVAL));
  if (error_number == ENOENT)
    return "reads past the page cache (O_DIRECT) need /proc, which is not mounted";
  return "cannot open the file past the page cache: " + words_of(error_number);
}

tl::unexpected<Error> cannot_read(std::uint64_t offset, std::uint64_t length, int error_number) {
  return tl::unexpected<Error>(
      os_error("read " + std::to_string(length) + " bytes at " + std::to_string(offset),
               error_number, offset));
}

// The errno of a file system that refuses only at the first read.
bool is_refusal(const Error& error) noexcept { return error.os_error == EINVAL; }

}  // namespace

DirectReader::DirectReader(const File& file) : file_(file) {
  // Opens the same file whatever its name is now.
  const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
  UniqueFd direct(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  why_not_direct_ = direct.get() < 0 ? why_not_opened(errno) : why_not_pages(direct.get());
  if (!why_not_direct_.empty()) return;
  direct_ = std::move(direct);
}

std::string DirectReader::why_not_direct() const {
  const std::scoped_lock lock(mutex_);
  return why_not_direct_;
}

Result<bool> DirectReader::read(std::uint64_t offset, std::span<std::byte> memory) {
  bool past_cache = why_not_direct().empty();
  if (past_cache) {
    const Result<void> read = read_past_cache(offset, memory);
    if (!read && !is_refusal(read.error())) return tl::unexpected<Error>(read.error());
    past_cache = read.has_value();
  }
  const std::uint64_t in_file = std::min<std::uint64_t>(memory.size(), file_.size() - offset);
  if (!past_cache) {
    TRY(file_.read(offset, memory.first(in_file)));
    const std::scoped_lock lock(mutex_);
    if (why_not_direct_.empty()) why_not_direct_ = refused(words_of(EINVAL));
  }
  // The disk's last block may hold anything behind the end of the file.
  std::memset(memory.data() + in_file, 0, memory.size() - in_file);
  return past_cache;
}

Result<void> DirectReader::read_past_cache(std::uint64_t offset,
                                           std::span<std::byte> memory) const {
  for (;;) {
    const ssize_t count =
        ::pread(direct_.get(), memory.data(), memory.size(), static_cast<off_t>(offset));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return cannot_read(offset, memory.size(), errno);
    const auto got = static_cast<std::uint64_t>(count);
    if (got == memory.size() || offset + got >= file_.size()) return {};
    // Continues after the last whole page.
    const std::uint64_t whole = got / page_bytes() * page_bytes();
    if (whole == 0) {
      TRY(check_not_truncated(file_, offset,
                              std::min<std::uint64_t>(memory.size(), file_.size() - offset)));
      return cannot_read(offset, memory.size(), EIO);
    }
    offset += whole;
    memory = memory.subspan(whole);
  }
}

}  // namespace weightmap::os
