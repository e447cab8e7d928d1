// Keeping reads under way, of a file that answers late in a time that is only counted.
#include "mmap/read_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "mmap/read_depth.hpp"
#include "tests/support/failures.hpp"

using namespace std::chrono_literals;

namespace weightmap::os {
namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

milliseconds since_start(Time time) {
  return std::chrono::duration_cast<milliseconds>(time - Time());
}

// Each read is answered `latency` after it began, and `transfer` after the one before.
class LateFile final : public ReadQueue {
 public:
  LateFile(std::chrono::nanoseconds latency, std::chrono::nanoseconds transfer)
      : latency_(latency), transfer_(transfer) {}

  void begin(const QueuedRead& read) override {
    free_ = std::max(free_ + transfer_, now + latency_);
    under_way_.push_back({read, true, free_});
    most_under_way = std::max(most_under_way, under_way_.size());
    ++reads;
  }
  Result<EndedRead> next() override {
    const EndedRead ended = under_way_.front();
    under_way_.erase(under_way_.begin());
    if (ended.when > now) ++waits;
    now = std::max(now, ended.when);
    if (reads_left == 0) return failure(ErrorCode::io, "the disk failed", ended.read.offset);
    --reads_left;
    return ended;
  }

  Time now{};
  std::size_t most_under_way = 0;
  std::size_t reads = 0;
  std::size_t reads_left = ~std::size_t{0};
  std::size_t waits = 0;

 private:
  std::chrono::nanoseconds latency_;
  std::chrono::nanoseconds transfer_;
  Time free_{};
  std::vector<EndedRead> under_way_;
};

// Reads a file into nowhere.
struct Reader {
  LateFile file;
  std::chrono::nanoseconds preparation{0};  // of the memory of one piece
  std::uint64_t there_until = 0;
  std::uint64_t ended_bytes = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(queued_bytes);

  Result<void> read(unsigned depth, std::uint64_t size) {
    ReadSteps steps;
    steps.prepare = [&](std::uint64_t offset,
                        std::uint64_t length) -> Result<std::span<std::byte>> {
      file.now += preparation;
      if (offset < there_until) return std::span<std::byte>();
      return std::span(memory).first(length);
    };
    steps.ended = [&](const EndedRead& ended) {
      ended_bytes += ended.read.memory.size();
      return Result<void>();
    };
    return read_ahead(file, ReadDepth(depth), size, steps);
  }
};

TEST_CASE("keeps as many reads under way as a file needs that answers after 50 ms") {
  Reader reader{LateFile(50ms, 0ms)};
  REQUIRE_OK(reader.read(network_depth, gib));
  CHECK(reader.ended_bytes == gib);
  CHECK(reader.file.most_under_way == 64);
  CHECK(reader.file.waits == 11);  // of 512 reads
  CHECK(since_start(reader.file.now) == 550ms);
}

TEST_CASE("finds out about a late file that says it is local") {
  Reader reader{LateFile(50ms, 0ms)};
  REQUIRE_OK(reader.read(local_depth, gib));
  CHECK(reader.file.most_under_way == 64);
  CHECK(since_start(reader.file.now) == 900ms);
}

TEST_CASE("a disk that is busy with few reads gets no more for long") {
  Reader reader{LateFile(100us, 1ms)};
  REQUIRE_OK(reader.read(local_depth, gib));
  CHECK(reader.file.most_under_way == 8);  // for one round, to see what that brings
  CHECK(since_start(reader.file.now) == 512ms);
}

TEST_CASE("gets memory while reads are under way") {
  Reader reader{LateFile(50ms, 0ms)};
  reader.preparation = 2ms;
  REQUIRE_OK(reader.read(most_depth, gib));
  CHECK(since_start(reader.file.now) == 512 * 2ms + 50ms);
}

TEST_CASE("reads nothing that is there, and a file of any size") {
  Reader reader{LateFile(1ms, 1ms)};
  reader.there_until = 3 * queued_bytes;
  REQUIRE_OK(reader.read(local_depth, 5 * queued_bytes + 1));
  CHECK(reader.file.reads == 3);
  CHECK(reader.ended_bytes == 2 * queued_bytes + 1);
}

TEST_CASE("begins no read after one that failed") {
  Reader reader{LateFile(1ms, 1ms)};
  reader.file.reads_left = 2;
  CHECK_FAILS(reader.read(local_depth, gib), ErrorCode::io, "the disk failed");
  CHECK(reader.file.reads == 6);
  CHECK(reader.ended_bytes == 2 * queued_bytes);
}

TEST_CASE("begins no read without memory for it") {
  LateFile file(1ms, 1ms);
  ReadSteps steps;
  steps.prepare = [](std::uint64_t, std::uint64_t) -> Result<std::span<std::byte>> {
    return failure(ErrorCode::io, "no memory");
  };
  CHECK_FAILS(read_ahead(file, ReadDepth(1), 1, steps), ErrorCode::io, "no memory");
  CHECK(file.reads == 0);
}

// --- the depth ---------------------------------------------------------------------------------

// Ends reads of one byte at this pace until the depth changes, and answers it.
unsigned next_depth(ReadDepth& depth, Time& now, std::chrono::nanoseconds pace) {
  const unsigned before = depth.now();
  for (int i = 0; i < 1000 && depth.now() == before; ++i) depth.ended(1, now += pace);
  return depth.now();
}

TEST_CASE("the depth doubles as long as that brings a fifth, and takes one step back") {
  Time now{};
  ReadDepth depth(4);
  CHECK(next_depth(depth, now, 1000us) == 8);
  CHECK(next_depth(depth, now, 820us) == 16);
  CHECK(next_depth(depth, now, 690us) == 8);
  CHECK(next_depth(depth, now, 1us) == 8);
}

TEST_CASE("the depth has a limit") {
  Time now{};
  ReadDepth depth(16);
  CHECK(next_depth(depth, now, 1000us) == 32);
  CHECK(next_depth(depth, now, 500us) == 64);
  CHECK(next_depth(depth, now, 250us) == 64);
}

TEST_CASE("the depth stands reads that take no time") {
  Time now{};
  ReadDepth depth(4);
  CHECK(next_depth(depth, now, 0us) == 8);
  CHECK(next_depth(depth, now, 0us) == 4);
}

TEST_CASE("the depth begins with what the file system is") {
  CHECK(depth_of_file_system(0xef53) == 4);       // ext4
  CHECK(depth_of_file_system(0x58465342) == 4);   // xfs
  CHECK(depth_of_file_system(0x9123683e) == 4);   // btrfs
  CHECK(depth_of_file_system(0x01021994) == 4);   // tmpfs
  CHECK(depth_of_file_system(0x6969) == 16);      // NFS
  CHECK(depth_of_file_system(0xff534d42) == 16);  // SMB
  CHECK(depth_of_file_system(0x65735546) == 16);  // FUSE
  CHECK(depth_of_file_system(0x00c36400) == 16);  // Ceph
  CHECK(depth_of_file_system(12345) == 16);
}

}  // namespace
}  // namespace weightmap::os
