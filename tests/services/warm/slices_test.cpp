// Warming parts of tensors: which bytes they lie in, and that no others are read.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "bench/proc_value.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/warm/slice_ranges.hpp"
#include "runtime/services/warm/warm_plan.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::opened;
using Ranges = std::vector<ByteRange>;
using Slices = std::vector<TensorSlice>;

namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

// Tensors begin with a page of whatever size: "wide" of 32 rows of 256 KiB, "narrow" of 4096 rows
// of 1 KiB.
struct Matrices {
  static constexpr std::uint64_t data = 64 * kib;
  static constexpr std::uint64_t narrow_at = data + 8 * mib;

  test::TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "model.safetensors";

  std::uint64_t read_by_two_ranks() const;

  Matrices() {
    std::string header =
        R"({"wide":{"dtype":"U8","shape":[32,262144],"data_offsets":[0,8388608]},)"
        R"("narrow":{"dtype":"F32","shape":[4096,256],"data_offsets":[8388608,12582912]}})";
    header.resize(data - 8, ' ');
    std::ofstream(path, std::ios::binary) << test::framed(header, std::string(12 * mib, 'x'));
    test::write_to_disk(path);
  }
};

TensorView tensor(const Checkpoint& checkpoint, std::string_view name) {
  return checkpoint.get(name).value().view;
}

Ranges ranges(const Checkpoint& checkpoint, const Slices& slices) {
  return ranges_of(Checkpoint::Access::state(checkpoint), slices).value();
}

// A view with these shape and strides, in elements of one byte, at the beginning of `of`.
TensorSlice strided(const TensorView& of, const std::vector<std::int64_t>& dims,
                    std::uint64_t extent) {
  return TensorSlice::of({DType::uint8, dims.size() / 2, dims.data(), of.data(), extent, 0})
      .value();
}

std::uint64_t sum(const Ranges& parts) {
  std::uint64_t bytes = 0;
  for (const ByteRange& part : parts) bytes += part.length;
  return bytes;
}

}  // namespace

TEST_CASE_FIXTURE(Matrices, "rows of a tensor are one run of bytes, columns one for each row") {
  const Checkpoint checkpoint = opened(path);
  const TensorView wide = tensor(checkpoint, "wide");
  CHECK(ranges(checkpoint, {wide.narrow(0, 2, 2).value()}) ==
        Ranges{{data + 512 * kib, 512 * kib}});
  const Ranges columns = ranges(checkpoint, {wide.narrow(1, 1000, 5000).value()});
  REQUIRE(columns.size() == 32);
  CHECK(columns[0] == ByteRange{data + 1000, 5000});
  CHECK(columns[31] == ByteRange{data + 31 * 256 * kib + 1000, 5000});
}

TEST_CASE_FIXTURE(Matrices, "rows near one another come with what is between") {
  const Checkpoint checkpoint = opened(path);
  const TensorView narrow = tensor(checkpoint, "narrow");
  // 1 KiB apart: all from the first to the last element, in blocks of a MiB at most.
  const Ranges columns = ranges(checkpoint, {narrow.narrow(1, 0, 1).value()});
  CHECK(columns == Ranges{{narrow_at, mib - kib + 4},
                          {narrow_at + mib, mib - kib + 4},
                          {narrow_at + 2 * mib, mib - kib + 4},
                          {narrow_at + 3 * mib, mib - kib + 4}});
}

TEST_CASE_FIXTURE(Matrices, "what overlaps or is transposed takes no more ranges than bytes") {
  const Checkpoint checkpoint = opened(path);
  const TensorView wide = tensor(checkpoint, "wide");
  // Transposed: by position, not element by element.
  const Ranges transposed =
      ranges(checkpoint, {strided(wide, {5000, 32, 1, 262144}, 31 * 262144 + 5000)});
  REQUIRE(transposed.size() == 32);
  CHECK(transposed[1] == ByteRange{data + 256 * kib, 5000});
  // Ten thousand ranges of the same 4 MB.
  CHECK(ranges(checkpoint, {strided(wide, {100, 100, 20000, 20000}, 198 * 20000 + 1)}) ==
        Ranges{{data, 198 * 20000 + 1}});
  CHECK(ranges(checkpoint, {wide.narrow(0, 5, 0).value()}).empty());
}

TEST_CASE_FIXTURE(Matrices, "a slice of another checkpoint is refused") {
  const Checkpoint checkpoint = opened(path);
  const Checkpoint other = opened(path);
  WarmOptions options;
  options.slices = {tensor(other, "wide").narrow(0, 0, 1).value()};
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "a slice is not one of this checkpoint");
}

TEST_CASE_FIXTURE(Matrices, "slices exclude a list of tensors, and a consumer to follow") {
  const Checkpoint checkpoint = opened(path);
  WarmOptions options;
  options.slices = {tensor(checkpoint, "wide").narrow(0, 0, 1).value()};
  options.tensors = {0};
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "slices cannot be combined with tensors or follow");
  options.tensors = {};
  options.follow = true;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "slices cannot be combined with tensors or follow");
}

TEST_CASE("an exact plan has the pages that its ranges touch, and joins what is adjacent only") {
  const ByteRange file{0, 32 * mib};
  const auto steps = [&file](const Ranges& parts) {
    return plan_warm_up(parts, {&file, 1}, {2 * mib, 32 * mib, 4096, true}).steps;
  };
  CHECK(steps({{5000, mib}}) == Ranges{{4096, mib + 4096}});
  CHECK(steps({{5000, 100}, {12288, 50}}) == Ranges{{4096, 4096}, {12288, 4096}});
  CHECK(steps({{5000, 100}, {8192, 50}}) == Ranges{{4096, 8192}});
  CHECK(steps({{mib, 3 * mib}}) == Ranges{{mib, mib}, {2 * mib, 2 * mib}});
}

// Two ranks' halves of both tensors, one after the other on an evicted file. Answers what was read.
std::uint64_t Matrices::read_by_two_ranks() const {
  const Checkpoint checkpoint = opened(path);
  const os::File& file = Checkpoint::Access::state(checkpoint).sources.front().file;
  const TensorView wide = tensor(checkpoint, "wide"), narrow = tensor(checkpoint, "narrow");
  // Of the header others may read a page at any time: `weightmap ps` does.
  const auto cached_data = [&file] {
    return mmap::CachedPages::of(file).value().cached_bytes(data, 12 * mib);
  };
  REQUIRE_OK(evict(path));
  REQUIRE(cached_data() == 0);
  std::vector<Ranges> needed;
  std::uint64_t bytes_done = 0;
  bool is_disturbed = false;
  const long long before = proc_value("/proc/self/io", "read_bytes:");
  for (const std::int64_t rank : {0, 1}) {
    WarmOptions options;
    // Columns of the one, rows of the other. The first 64 KiB of each half only, so that something
    // is left out.
    options.slices = {wide.narrow(1, rank * 131072, 65536).value(),
                      narrow.narrow(0, rank * 2048, 2048).value()};
    needed.push_back(ranges(checkpoint, options.slices));
    const WarmReport report = Warmer::start(checkpoint, options).value().wait().value();
    CHECK(report.bytes_done == 2 * mib + 2 * mib);
    bytes_done += report.bytes_done;
    if (rank == 0) {  // nothing of what the other needs
      const mmap::CachedPages cached = mmap::CachedPages::of(file).value();
      // What the system takes before it is mapped comes back with the pages around it.
      is_disturbed = cached_data() > report.bytes_done;
      if (is_disturbed) continue;
      CHECK(cached.cached_bytes(narrow_at + 2 * mib, 2 * mib) == 0);
      CHECK(cached.cached_bytes(data + 64 * kib, 64 * kib) == 0);
      CHECK(cached.cached_bytes(data + 128 * kib, 64 * kib) == 0);
    }
  }
  const long long read = proc_value("/proc/self/io", "read_bytes:") - before;
  CHECK(bytes_done == 8 * mib);
  CHECK(sum(needed[0]) + sum(needed[1]) == 8 * mib);
  is_disturbed = is_disturbed || cached_data() > 8 * mib;
  return is_disturbed ? ~std::uint64_t{0} : static_cast<std::uint64_t>(read);
}

TEST_CASE_FIXTURE(Matrices, "two ranks read each byte that they need once, and no other") {
  if (evict(path).value().lives_in_memory) {
    MESSAGE("SKIPPED: the temporary folder is in memory");
    return;
  }
  // The least of several rounds: what the system takes before it is mapped is read again.
  std::uint64_t least = read_by_two_ranks();
  for (int i = 0; i < 50 && least > 8 * mib; ++i) least = std::min(least, read_by_two_ranks());
  CHECK(least == 8 * mib);
}
