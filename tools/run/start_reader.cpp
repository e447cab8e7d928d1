#include "tools/run/start_reader.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "tools/run/dropped_pages.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::size_t sampled_files = 64;
constexpr std::size_t reading_threads = 4;
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
// What is left free when the reading ends for lack of memory.
constexpr std::uint64_t memory_reserve = std::uint64_t{256} << 20;

// Returns nullopt if the file is not there, none that may be opened, or one that the command's open
// would drop again. `has_changed` says that it is another version.
std::optional<os::File> open_planned(const PlannedFile& planned, bool& has_changed) {
  if (drops_pages_at_open(planned.path)) return std::nullopt;
  Result<os::File> file = os::File::open_foreign(planned.path);
  if (!file) return std::nullopt;
  has_changed = file->size() != planned.size || file->generation().mtime_ns != planned.mtime_ns;
  return std::move(*file);
}

// True if a byte of the file can be had without the disk.
bool is_byte_cached(const os::File& file, std::uint64_t offset) noexcept {
  char byte = 0;
  iovec into{&byte, 1};
  return ::preadv2(file.descriptor(), &into, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

std::vector<ByteRange> parts_of(const PlannedFile& file) {
  return file.parts.empty() ? std::vector<ByteRange>{{0, file.size}} : file.parts;
}

enum class Sample { cached, cold, outdated };

Sample sample(const PlannedFile& planned) {
  bool has_changed = false;
  const std::optional<os::File> file = open_planned(planned, has_changed);
  if (!file || has_changed) return Sample::outdated;
  const std::vector<ByteRange> parts = parts_of(planned);
  const ByteRange& part = parts[parts.size() / 2];
  return is_byte_cached(*file, part.offset + part.length / 2) ? Sample::cached : Sample::cold;
}

// Looks at up to 64 files, spread over the plan: true if all are in the page cache, but for a tenth
// that are missing or other ones by now. Reads nothing; false where the file system cannot tell.
bool seems_cached(const StartPlan& plan) {
  const std::size_t step = plan.files.size() / sampled_files + 1;
  std::size_t cached = 0, outdated = 0;
  for (std::size_t i = 0; i < plan.files.size(); i += step) {
    const Sample found = sample(plan.files[i]);
    if (found == Sample::cold) return false;
    ++(found == Sample::cached ? cached : outdated);
  }
  return outdated * 10 <= cached + outdated;
}

class Reading {
 public:
  Reading(const StartPlan& plan, const std::atomic<bool>& stopped) noexcept
      : plan_(plan), stopped_(stopped) {}

  void run() {
    for (std::size_t index = next_++; index < plan_.files.size() && !is_over(); index = next_++)
      read(plan_.files[index]);
  }

  ReadCounts counts() const {
    ReadCounts counts;
    counts.files_read = files_;
    counts.files_changed = changed_;
    counts.files_missing = missing_;
    counts.bytes = bytes_;
    counts.ran_out_of_memory = is_short_;
    return counts;
  }

 private:
  bool is_over() const noexcept { return stopped_ || is_short_; }

  void read(const PlannedFile& planned) {
    bool has_changed = false;
    const std::optional<os::File> file = open_planned(planned, has_changed);
    if (!file) {
      ++missing_;
    } else if (has_changed) {
      ++changed_;
    } else {
      ++files_;
      for (const ByteRange& part : parts_of(planned)) read(*file, part);
    }
  }

  void read(const os::File& file, const ByteRange& part) {
    const std::uint64_t end = part.offset + part.length;
    for (std::uint64_t at = part.offset; at < end && !is_over(); at += piece_bytes)
      read_piece(file, at, std::min(piece_bytes, end - at));
  }

  // Copies, so that in a virtual machine the host has mapped the page when the command touches it.
  void read_piece(const os::File& file, std::uint64_t offset, std::uint64_t length) {
    if (bytes_.fetch_add(length) % (64 * piece_bytes) < length) look_at_memory();
    thread_local std::vector<char> scratch(piece_bytes);
    static_cast<void>(
        ::pread(file.descriptor(), scratch.data(), length, static_cast<off_t>(offset)));
  }

  void look_at_memory() {
    const os::MemoryLimit limit = os::memory_limit();
    if (limit.available != os::MemoryLimit::unknown && limit.available < memory_reserve)
      is_short_ = true;
  }

  const StartPlan& plan_;
  const std::atomic<bool>& stopped_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> files_{0}, changed_{0}, missing_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> is_short_{false};
};

}  // namespace

ReadCounts read_start(const StartPlan& plan, const std::atomic<bool>& stopped) {
  if (seems_cached(plan)) {
    ReadCounts counts;
    counts.was_cached = true;
    return counts;
  }
  Reading reading(plan, stopped);
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 1; i < reading_threads; ++i)
      threads.emplace_back([&reading] { reading.run(); });
  } catch (const std::system_error&) {  // the limit on threads: those that are there do all
  }
  reading.run();
  for (std::thread& thread : threads) thread.join();
  return reading.counts();
}

Result<std::uint64_t> cached_bytes_of(const StartPlan& plan) {
  std::uint64_t bytes = 0;
  for (const PlannedFile& planned : plan.files) {
    TRY_ASSIGN(const os::File file, os::File::open_foreign(planned.path));
    TRY_ASSIGN(const mmap::CachedPages pages, mmap::CachedPages::of(file));
    for (const ByteRange& part : parts_of(planned))
      bytes += pages.cached_bytes(part.offset, part.length);
  }
  return bytes;
}

void fill_cache(const StartPlan& plan) {
  const std::atomic<bool> never{false};
  Reading(plan, never).run();
}

void evict(const StartPlan& plan) {
  for (const PlannedFile& planned : plan.files)
    if (const Result<os::File> file = os::File::open_foreign(planned.path))
      ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace weightmap::cli::start
