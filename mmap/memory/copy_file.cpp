#include "mmap/memory/copy_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "mmap/direct_reader.hpp"
#include "mmap/kernel.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"
#include "mmap/pages/mapped_memory.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/read_depth.hpp"
#include "mmap/read_queue.hpp"
#include "mmap/reservation.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::os {
namespace {

std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) noexcept {
  return (size + unit - 1) / unit * unit;
}

// A writable mapping of the new file, at an address that large pages can lie at.
class Target {
 public:
  Target(int memory, std::uint64_t bytes)
      : memory_(memory),
        reservation_(round_up(bytes, page_bytes()), large_page, Reservation::Access::none) {
    const std::span<std::byte> place = reservation_.bytes();
    if (place.empty()) return;
    if (::mmap(place.data(), place.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
               0) != MAP_FAILED)
      bytes_ = place;
  }

  // Whole pages; empty, with errno set, if it could not be mapped.
  std::span<std::byte> bytes() const noexcept { return bytes_; }

  // Sees to it that there is memory for this range, so that filling it raises no signal.
  Result<void> allocate(std::uint64_t offset, std::uint64_t length) {
    if (collapses_ && length >= large_page) collapse(offset);
    if (reserve(offset, length)) return {};
    return tl::unexpected<Error>(
        os_error("get " + std::to_string(length) + " bytes of shared memory", errno, offset));
  }

 private:
  bool reserve(std::uint64_t offset, std::uint64_t length) const noexcept {
    int result = 0;
    do {
      result = ::fallocate(memory_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                           static_cast<off_t>(length));
    } while (result != 0 && errno == EINTR);
    return result == 0;
  }

  // One page that is there becomes a large one, with nothing to copy.
  void collapse(std::uint64_t offset) noexcept {
    if (!reserve(offset, page_bytes())) return;
    if (::madvise(&bytes_[offset], large_page, MADV_COLLAPSE) != 0 && errno == EINVAL)
      collapses_ = false;
  }

  int memory_;
  Reservation reservation_;
  std::span<std::byte> bytes_;
  bool collapses_ = true;
};

class Copier {
 public:
  Copier(const File& source, Target& target) : source_(source), target_(target) {
    if (Result<CachedPages> cached = CachedPages::of(source); cached) cached_ = std::move(*cached);
  }

  // Copies what is cached, and answers where to read anything else to.
  Result<std::span<std::byte>> prepare(std::uint64_t offset, std::uint64_t length) {
    TRY(target_.allocate(offset, length));
    if (!cached_ || cached_->cached_bytes(offset, length) < length)
      return target_.bytes().subspan(offset, round_up(length, page_bytes()));
    TRY(source_.read(offset, target_.bytes().subspan(offset, length)));
    report_.cached_bytes += length;
    return std::span<std::byte>();
  }

  void ended(const EndedRead& ended) {
    const std::uint64_t offset = ended.read.offset;
    const std::uint64_t end = std::min(source_.size(), offset + ended.read.memory.size());
    if (ended.past_cache)
      report_.direct_bytes += end - offset;
    else
      drop_what_came(offset, end);
  }

  CopyReport& report() noexcept { return report_; }

 private:
  void drop_what_came(std::uint64_t begin, std::uint64_t end) {
    if (!cached_) return;  // not known, so left as it is
    for (std::uint64_t at = begin; at < end; at += page_bytes()) {
      const std::uint64_t stays = cached_->cached_bytes(at, page_bytes());
      if (stays == 0) continue;
      report_.cached_bytes += stays;
      drop(begin, at);
      begin = at + page_bytes();
    }
    drop(begin, end);
  }

  void drop(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    report_.dropped_bytes += end - begin;
    ::posix_fadvise(source_.descriptor(), static_cast<off_t>(begin),
                    static_cast<off_t>(round_up(end - begin, page_bytes())), POSIX_FADV_DONTNEED);
  }

  const File& source_;
  Target& target_;
  std::optional<CachedPages> cached_;  // before; nullopt where the system does not tell
  CopyReport report_;
};

}  // namespace

Result<CopyReport> copy_to_memory(const File& source, int memory, const Progress& progress) {
  const std::uint64_t all = source.size();
  Target target(memory, all);
  if (target.bytes().empty()) return os_failure("map " + std::to_string(all) + " bytes");
  ::madvise(target.bytes().data(), target.bytes().size(), MADV_HUGEPAGE);
  source.advise_metadata();  // nothing is read ahead
  Copier copier(source, target);
  DirectReader reader(source);
  std::uint64_t done = 0;
  const auto say_done = [&](std::uint64_t more) { return go_on(progress, done += more, all); };
  ReadSteps steps;
  steps.prepare = [&](std::uint64_t offset, std::uint64_t length) -> Result<std::span<std::byte>> {
    Result<std::span<std::byte>> wanted = copier.prepare(offset, length);
    if (wanted && wanted->empty()) TRY(say_done(length));
    return wanted;
  };
  steps.ended = [&](const EndedRead& ended) {
    copier.ended(ended);
    return say_done(std::min<std::uint64_t>(ended.read.memory.size(), all - ended.read.offset));
  };
  TRY(read_ahead(reader, ReadDepth(depth_for(source)), all, steps));
  CopyReport report = std::move(copier.report());
  report.why_not_direct = reader.why_not_direct();
  const std::span<const std::byte> mapped(target.bytes());
  if (const Result<MappedMemory> held = mapped_memory(mapped); held) report.huge_bytes = held->huge;
  return report;
}

}  // namespace weightmap::os
