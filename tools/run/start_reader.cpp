#include "tools/run/start_reader.hpp"

#include <fcntl.h>
#include <sys/uio.h>

#include <optional>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::size_t sampled_files = 64;

// True if the byte can be had without the disk.
bool is_byte_cached(const os::File& file, std::uint64_t offset) noexcept {
  char byte = 0;
  iovec into{&byte, 1};
  return ::preadv2(file.descriptor(), &into, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
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

}  // namespace

ReadCounts read_start(const StartPlan& plan, const std::atomic<bool>& stopped) {
  if (seems_cached(plan)) {
    ReadCounts counts;
    counts.was_cached = true;
    return counts;
  }
  return PlanReading(plan, stopped).run();
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
  PlanReading(plan, never).run();
}

void evict(const StartPlan& plan) {
  for (const PlannedFile& planned : plan.files)
    if (const Result<os::File> file = os::File::open_foreign(planned.path))
      ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace weightmap::cli::start
