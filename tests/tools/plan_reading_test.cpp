#include "tools/run/plan_reading.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "mmap/pages/page_cache.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::cli::start {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
const std::atomic<bool> goes_on{false}, is_stopped{true};

// A file of several units (2 MiB) and less than a page more, on the disk.
class PlannedFolder {
 public:
  PlannedFolder() {
    const auto path = folder.write("file", std::string(7 * mib + 77, 'w'));
    const os::File file = os::File::open(path, false).value();
    REQUIRE(::fsync(file.descriptor()) == 0);
    planned = {path.native(), file.size(), file.generation().mtime_ns, {}};
  }

  // False where the file system keeps files in memory.
  bool evicted() const {
    const os::File file = os::File::open(planned.path, false).value();
    if (mmap::lives_in_memory(file)) {
      MESSAGE("SKIPPED: the temporary folder is in memory, where nothing can be evicted");
      return false;
    }
    for (int tries = 0; mmap::evict(file).value() > 0; ++tries) REQUIRE(tries < 1000);
    return true;
  }

  std::uint64_t cached_bytes(const ByteRange& part) const {
    const os::File file = os::File::open(planned.path, false).value();
    return mmap::CachedPages::of(file).value().cached_bytes(part.offset, part.length);
  }

  test::TemporaryFolder folder;
  PlannedFile planned;
};

ReadCounts read(const PlannedFile& planned, const std::atomic<bool>& stopped = goes_on) {
  const StartPlan plan{"key", {planned}};
  return PlanReading(plan, stopped).run();
}

TEST_CASE("a reading brings a whole file into the page cache, and counts what was not there") {
  const PlannedFolder there;
  if (!there.evicted()) return;
  const ReadCounts counts = read(there.planned);
  CHECK(counts.files_read == 1);
  CHECK(counts.bytes == there.planned.size);
  CHECK_FALSE(counts.ran_out_of_memory);
  CHECK(there.cached_bytes({0, there.planned.size}) == there.planned.size);
  CHECK(read(there.planned).bytes == 0);
}

TEST_CASE("a reading brings the parts of a file that are planned, small ones and large ones") {
  PlannedFolder there;
  if (!there.evicted()) return;
  there.planned.parts = {{4096, 4096}, {mib + 4096, 5 * mib}, {7 * mib, 77}};
  CHECK(read(there.planned).bytes == 4096 + 5 * mib + 77);
  for (const ByteRange& part : there.planned.parts) CHECK(there.cached_bytes(part) == part.length);
}

TEST_CASE("a reading leaves out files that have changed, and those that are not there") {
  PlannedFolder there;
  there.planned.mtime_ns += 1;
  CHECK(read(there.planned).files_changed == 1);
  there.planned.path += ".none";
  const ReadCounts counts = read(there.planned);
  CHECK(counts.files_missing == 1);
  CHECK(counts.files_read + counts.files_changed == 0);
}

TEST_CASE("a size that no file has takes neither memory nor time") {
  PlannedFolder there;
  there.planned.size = ~std::uint64_t{0};
  CHECK(read(there.planned).files_changed == 1);
  there.planned.parts = {{0, ~std::uint64_t{0} - 9}};
  CHECK(read(there.planned).files_changed == 1);
}

TEST_CASE("a reading that is stopped opens no file") {
  const PlannedFolder there;
  const ReadCounts counts = read(there.planned, is_stopped);
  CHECK(counts.files_read + counts.files_changed + counts.files_missing == 0);
}

TEST_CASE("a sink takes a file that has become shorter, and none without a descriptor") {
  const PlannedFolder there;
  PageSink sink(mib);
  const os::File file = os::File::open(there.planned.path, false).value();
  CHECK(sink.take(file, {0, there.planned.size}));
  CHECK(sink.take(file, {there.planned.size, mib}));
  CHECK_FALSE(sink.take(os::File::in_memory(std::as_bytes(std::span("memory"))).value(), {0, 4}));
}

}  // namespace
}  // namespace weightmap::cli::start
