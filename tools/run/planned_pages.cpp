#include "tools/run/planned_pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::cli::start {
namespace {

std::vector<ByteRange> parts_of(const PlannedFile& file) {
  return file.parts.empty() ? std::vector<ByteRange>{{0, file.size}} : file.parts;
}

}  // namespace

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
  std::vector<char> scratch(std::size_t{1} << 20);
  for (const PlannedFile& planned : plan.files) {
    const Result<os::File> file = os::File::open_foreign(planned.path);
    if (!file) continue;
    for (const ByteRange& part : parts_of(planned))
      for (std::uint64_t done = 0; done < part.length;) {
        const std::uint64_t wanted = std::min<std::uint64_t>(scratch.size(), part.length - done);
        const ssize_t got = ::pread(file->descriptor(), scratch.data(), wanted,
                                    static_cast<off_t>(part.offset + done));
        if (got <= 0) break;
        done += static_cast<std::uint64_t>(got);
      }
  }
}

void evict(const StartPlan& plan) {
  for (const PlannedFile& planned : plan.files)
    if (const Result<os::File> file = os::File::open_foreign(planned.path))
      ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace weightmap::cli::start
