#include "mmap/memory/copy_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "mmap/memory/memory_to_fill.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/direct_reader.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::uint64_t copied_piece = std::uint64_t{2} << 20;  // a multiple of every page size

constexpr std::array<std::uint64_t, 9> local_types{
    EXT4_SUPER_MAGIC, os::kernel::xfs_magic, BTRFS_SUPER_MAGIC,
    F2FS_SUPER_MAGIC, os::kernel::zfs_magic, os::kernel::bcachefs_magic,
    TMPFS_MAGIC,      RAMFS_MAGIC,           OVERLAYFS_SUPER_MAGIC,
};

class Copier {
 public:
  Copier(const os::File& source, MemoryToFill& target, const Progress& progress)
      : source_(source), target_(target), progress_(progress), reader_(source) {
    if (Result<CachedPages> cached = CachedPages::of(source); cached) cached_ = std::move(*cached);
  }

  Result<CopyReport> copy() {
    const std::uint64_t count = (source_.size() + copied_piece - 1) / copied_piece;
    TRY(parallel_for(count, reads_at_a_time(source_),
                     [this](std::size_t number) { return copy_piece(number * copied_piece); }));
    if (told_ < source_.size()) TRY(tell(source_.size()));
    report_.why_not_direct = reader_.why_not_direct();
    return std::move(report_);
  }

 private:
  Result<void> copy_piece(std::uint64_t offset) {
    const std::uint64_t length = std::min(copied_piece, source_.size() - offset);
    TRY(target_.allocate(offset, length));
    TRY_ASSIGN(const CopyReport came, fill(offset, length));
    std::uint64_t done = 0;
    {
      const std::scoped_lock lock(mutex_);
      report_.cached_bytes += came.cached_bytes;
      report_.direct_bytes += came.direct_bytes;
      report_.dropped_bytes += came.dropped_bytes;
      done = done_ += length;
    }
    if (std::this_thread::get_id() != caller_) return {};
    return tell(done);
  }

  Result<void> tell(std::uint64_t done) {
    told_ = done;
    return go_on(progress_, done, source_.size());
  }

  // Copies from the page cache, if all of it is there.
  Result<CopyReport> fill(std::uint64_t offset, std::uint64_t length) {
    CopyReport came;
    if (cached_ && cached_->cached_bytes(offset, length) == length) {
      TRY(source_.read(offset, target_.bytes().subspan(offset, length)));
      came.cached_bytes = length;
      return came;
    }
    TRY_ASSIGN(const bool past_cache,
               reader_.read(offset, target_.bytes().subspan(offset, os::whole_pages(length))));
    if (past_cache)
      came.direct_bytes = length;
    else
      drop_what_came(offset, offset + length, came);
    return came;
  }

  void drop_what_came(std::uint64_t begin, std::uint64_t end, CopyReport& came) const {
    if (!cached_) return;  // unknown, so the cache is left as it is
    for (std::uint64_t at = begin; at < end; at += os::page_bytes()) {
      const std::uint64_t stays = cached_->cached_bytes(at, os::page_bytes());
      if (stays == 0) continue;
      came.cached_bytes += stays;
      drop(begin, at, came);
      begin = at + os::page_bytes();
    }
    drop(begin, end, came);
  }

  void drop(std::uint64_t begin, std::uint64_t end, CopyReport& came) const {
    if (begin >= end) return;
    came.dropped_bytes += end - begin;
    ::posix_fadvise(source_.descriptor(), static_cast<off_t>(begin),
                    static_cast<off_t>(os::whole_pages(end - begin)), POSIX_FADV_DONTNEED);
  }

  const os::File& source_;
  MemoryToFill& target_;
  const Progress& progress_;  // called by the caller's thread only
  const std::thread::id caller_ = std::this_thread::get_id();
  std::uint64_t told_ = 0;
  os::DirectReader reader_;
  std::optional<CachedPages> cached_;  // before the copy; nullopt if the system does not report it
  std::mutex mutex_;                   // protects the following members
  CopyReport report_;
  std::uint64_t done_ = 0;
};

}  // namespace

unsigned reads_at_a_time(const os::File& file) noexcept {
  struct statfs status {};
  if (::fstatfs(file.descriptor(), &status) != 0) return local_reads;
  return reads_of_file_system(static_cast<std::uint32_t>(status.f_type));
}

unsigned reads_of_file_system(std::uint64_t type) noexcept {
  return std::find(local_types.begin(), local_types.end(), type) != local_types.end()
             ? local_reads
             : network_reads;
}

Result<CopyReport> copy_to_memory(const os::File& source, int memory, const Progress& progress) {
  const std::uint64_t all = source.size();
  TRY_ASSIGN(MemoryToFill target, MemoryToFill::map(memory, all));
  source.advise_metadata();  // disables read-ahead
  TRY_ASSIGN(CopyReport report, Copier(source, target, progress).copy());
  const Result<MappedMemory> held = mapped_memory(target.bytes());
  if (held) report.huge_bytes = held->huge;
  return report;
}

}  // namespace weightmap::mmap
