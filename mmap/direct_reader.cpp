#include "mmap/direct_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"
#include "mmap/truncation.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::os {
namespace {

std::string refused(const std::string& why) {
  return "the file system refuses reads past the page cache (O_DIRECT): " + why;
}

std::string words_of(int error_number) { return std::generic_category().message(error_number); }

// What offset, address and length of a read have to be multiples of; 0 if the file system knows
// that it cannot do any. Where it does not tell, every disk can do with pages.
std::uint64_t alignment_of([[maybe_unused]] int descriptor) noexcept {
#ifdef STATX_DIOALIGN  // Linux 6.1
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0)
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
#endif
  return page_bytes();
}

// Empty if pages will do.
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

// The errno of a file system that refuses only when it is to read.
bool is_refusal(const Error& error) noexcept { return error.os_error == EINVAL; }

}  // namespace

DirectReader::DirectReader(const File& file) : file_(file) {
  // The same file whatever its name is now.
  const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
  UniqueFd direct(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  why_not_direct_ = direct.get() < 0 ? why_not_opened(errno) : why_not_pages(direct.get());
  if (!why_not_direct_.empty()) return;
  direct_ = std::move(direct);
  is_direct_ = true;
}

DirectReader::~DirectReader() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DirectReader::begin(const QueuedRead& read) {
  {
    const std::lock_guard lock(mutex_);
    ended_.reserve(under_way_ + 1);
    waiting_.push_back(read);
    ++under_way_;
  }
  begun_.notify_one();
  if (under_way_ <= threads_.size()) return;
  try {
    threads_.reserve(under_way_);
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // fewer will do
  }
}

Result<EndedRead> DirectReader::next() {
  std::unique_lock lock(mutex_);
  if (threads_.empty()) run_first(lock);
  some_ended_.wait(lock, [this] { return !ended_.empty(); });
  Ended ended = std::move(ended_.front());
  ended_.erase(ended_.begin());
  --under_way_;
  if (ended.failure) std::rethrow_exception(ended.failure);
  TRY_ASSIGN(const bool past_cache, std::move(ended.past_cache));
  if (is_direct_ && !past_cache) {
    is_direct_ = false;
    why_not_direct_ = refused(words_of(EINVAL));
  }
  return EndedRead{ended.read, past_cache, ended.when};
}

void DirectReader::work() {
  for (std::unique_lock lock(mutex_);;) {
    begun_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
    if (is_closed_) return;
    run_first(lock);
  }
}

void DirectReader::run_first(std::unique_lock<std::mutex>& lock) {
  Ended ended{waiting_.front(), {}, false, nullptr};
  waiting_.pop_front();
  const bool direct = is_direct_;
  lock.unlock();
  try {
    ended.past_cache = read_piece(ended.read, direct);
  } catch (...) {
    ended.failure = std::current_exception();
  }
  lock.lock();
  ended.when = std::chrono::steady_clock::now();
  ended_.push_back(std::move(ended));
  some_ended_.notify_one();
}

Result<bool> DirectReader::read_piece(const QueuedRead& read, bool direct) const {
  const std::uint64_t in_file =
      std::min<std::uint64_t>(read.memory.size(), file_.size() - read.offset);
  Result<bool> past_cache = false;
  if (direct) past_cache = read_past_cache(read);
  if (!direct || (!past_cache && is_refusal(past_cache.error()))) {
    TRY(file_.read(read.offset, read.memory.first(in_file)));
    past_cache = false;
  }
  // The disk's last block may hold anything behind the end of the file.
  std::memset(read.memory.data() + in_file, 0, read.memory.size() - in_file);
  return past_cache;
}

Result<bool> DirectReader::read_past_cache(const QueuedRead& read) const {
  for (std::uint64_t done = 0; done < read.memory.size();) {
    const std::uint64_t offset = read.offset + done;
    const std::span<std::byte> left = read.memory.subspan(done);
    const ssize_t count =
        ::pread(direct_.get(), left.data(), left.size(), static_cast<off_t>(offset));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return cannot_read(offset, left.size(), errno);
    const auto got = static_cast<std::uint64_t>(count);
    if (got == left.size() || offset + got >= file_.size()) break;
    // Goes on where the last whole page ended.
    const std::uint64_t whole = got / page_bytes() * page_bytes();
    if (whole == 0) {
      TRY(check_not_truncated(file_, offset,
                              std::min<std::uint64_t>(left.size(), file_.size() - offset)));
      return cannot_read(offset, left.size(), EIO);
    }
    done += whole;
  }
  return true;
}

}  // namespace weightmap::os
