// What this process may take of memory and of the size of a file, and refusals instead of signals.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/system/file/file.hpp"
#include "runtime/system/memory/lock_share.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/process/processor_quota.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using test::in_child;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// A machine with 1 GiB to give, and this process in the group /serve of version 2.
struct Machine {
  TemporaryFolder folder;

  Machine() {
    write("proc/meminfo", "MemAvailable:    1048576 kB\n");
    write("proc/self/cgroup", "0::/serve\n");
    write("sys/fs/cgroup/serve/memory.current", "100000000\n");
    write("sys/fs/cgroup/serve/memory.stat", "inactive_file 30000000\nactive_file 20000000\n");
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << text;
  }
  os::MemoryLimit limit() const { return os::memory_limit(folder.path()); }
  double waiting() const { return os::memory_waiting(folder.path()); }
  bool rations_processors() const { return os::has_processor_quota(folder.path()); }
};

}  // namespace

TEST_CASE_FIXTURE(Machine,
                  "of the machine and the group the one that waits more for memory counts") {
  CHECK(waiting() == 0);  // the kernel has no PSI
  write("proc/pressure/memory",
        "some avg10=1.50 avg60=7.00 avg300=8.00 total=9\nfull avg10=5.00\n");
  CHECK(waiting() == 1.5);
  write("sys/fs/cgroup/serve/memory.pressure", "some avg10=12.25 avg60=0.00 avg300=0.00 total=1\n");
  CHECK(waiting() == 12.25);
  write("sys/fs/cgroup/serve/memory.pressure", "some avg10=0.75 avg60=0.00 avg300=0.00 total=1\n");
  CHECK(waiting() == 1.5);
  write("proc/pressure/memory", "nothing of the kind\n");
  CHECK(waiting() == 0.75);
}

TEST_CASE_FIXTURE(Machine,
                  "the less of memory.high and memory.max counts, and what is over it has none") {
  const struct {
    const char* max;
    const char* high;
    std::uint64_t available;
    const char* reason;
  } rows[] = {{"500000000\n", "max\n", 450000000, "memory.max of /serve"},
              {"500000000\n", "300000000\n", 250000000, "memory.high of /serve"},
              {"max\n", "60000000\n", 10000000, "memory.high of /serve"},
              {"max\n", "40000000\n", 0, "memory.high of /serve"}};
  for (const auto& row : rows) {
    CAPTURE(row.max);
    CAPTURE(row.high);
    write("sys/fs/cgroup/serve/memory.max", row.max);
    write("sys/fs/cgroup/serve/memory.high", row.high);
    CHECK(limit().available == row.available);
    CHECK(limit().reason == row.reason);
  }
}

TEST_CASE_FIXTURE(Machine,
                  "a quota of processor time counts, of its own group and of those above") {
  CHECK_FALSE(rations_processors());  // nothing tells of one
  write("sys/fs/cgroup/serve/cpu.max", "max 100000\n");
  CHECK_FALSE(rations_processors());
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(rations_processors());
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/serve/cpu.max", "50000 100000\n");
  CHECK(rations_processors());
}

TEST_CASE_FIXTURE(Machine, "a quota of processor time counts with groups of version 1, too") {
  write("proc/self/cgroup", "4:memory:/serve\n1:cpu,cpuacct:/pod/one\n");
  write("sys/fs/cgroup/memory/serve/cpu.cfs_quota_us", "50000\n");  // not of this hierarchy
  write("sys/fs/cgroup/cpu/pod/one/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(rations_processors());
  write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "50000\n");
  CHECK(rations_processors());
}

TEST_CASE("memory beyond the limit on the size of a file is an error and no signal") {
  CHECK(in_child([] {
          const rlimit limit{1 << 20, 1 << 20};
          ::setrlimit(RLIMIT_FSIZE, &limit);
          if (!os::make_memfd(1 << 20)) return 1;
          const Result<os::UniqueFd> refused = os::make_memfd((1 << 20) + 1);
          if (refused) return 2;
          return refused.error().os_error == EFBIG ? 0 : 3;
        }) == "exit 0");
}

TEST_CASE_FIXTURE(TemporaryFolder, "a file opened by descriptor has an open file of its own") {
  const fs::path path = write("file", std::string_view("0123456789"));
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::lseek(descriptor, 5, SEEK_SET) == 5);
  const Result<os::File> file = os::File::from_descriptor(descriptor);
  REQUIRE_OK(file);
  // So that advice about reading ahead, which belongs to the open file, changes nothing for others.
  CHECK(::lseek(file->descriptor(), 0, SEEK_CUR) == 0);
  ::close(descriptor);
}

namespace {

// 1600 bytes that may be locked, of which the system has what the shares have not locked.
struct Lockable {
  std::uint64_t taken = 0;

  std::uint64_t promise(os::LockShare& share, std::uint64_t wanted) const {
    return share.promise(wanted, [this] { return os::MemoryLimit{1600 - taken, "memory.max"}; });
  }
  void lock(os::LockShare& share, std::uint64_t before, std::uint64_t bytes) {
    taken += bytes - before;
    share.locked(bytes);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Lockable, "what is locked again and again gets no more than the first time") {
  os::LockShare share;
  CHECK(promise(share, 5000) == 1500);
  lock(share, 0, 1500);
  share.finish();
  for (int i = 0; i < 100; ++i) {
    CHECK(promise(share, 5000) == 1500);
    share.finish();
  }
}

TEST_CASE_FIXTURE(Lockable, "all that is locked together gets no more than one would") {
  os::LockShare first, second;
  CHECK(promise(first, 1000) == 1500);  // which both ask for before either locks anything
  CHECK(promise(second, 1000) == 500);
  lock(first, 0, 1000);
  lock(second, 0, 500);
  first.finish();
  second.finish();
  CHECK(promise(second, 1000) == 500);
  CHECK(promise(first, 1000) == 1000);
  os::LockShare third;
  CHECK(promise(third, 1000) == 0);
}

TEST_CASE_FIXTURE(Lockable, "what is closed, or was promised and not locked, is there for others") {
  os::LockShare share;
  {
    os::LockShare closed;
    CHECK(promise(closed, 1500) == 1500);
    lock(closed, 0, 700);
    closed.finish();
    CHECK(promise(share, 1500) == 800);
    share.finish();
  }
  taken = 0;
  CHECK(promise(share, 1500) == 1500);
}

TEST_CASE_FIXTURE(Lockable,
                  "what others take of the memory is not promised, and what is locked stays") {
  os::LockShare share;
  CHECK(promise(share, 1500) == 1500);
  lock(share, 0, 1000);
  taken += 320;
  CHECK(promise(share, 1500) == 1200);
  taken += 280;
  CHECK(promise(share, 1500) == 938);
}
