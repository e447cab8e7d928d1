// Warming: which ranges, how much of them, and what happens meanwhile.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "mmap/page_loader.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/verify/storage_summer.hpp"
#include "runtime/services/warm/page_set.hpp"
#include "runtime/services/warm/warm_plan.hpp"
#include "runtime/services/warm/warm_window.hpp"
#include "runtime/system/facilities.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::data;
using test::opened;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t no_budget = ~std::uint64_t{0};

WarmPlan plan(const std::vector<ByteRange>& ranges, std::uint64_t file_bytes,
              std::uint64_t step = 8 * mib, std::uint64_t budget = no_budget) {
  const ByteRange file{0, file_bytes};
  return plan_warm_up(ranges, {&file, 1}, {step, budget, 4096});
}

std::vector<ByteRange> steps(const std::vector<ByteRange>& ranges, std::uint64_t file_bytes,
                             std::uint64_t page_bytes = 4096) {
  const ByteRange file{0, file_bytes};
  return plan_warm_up(ranges, {&file, 1}, {8 * mib, no_budget, page_bytes}).steps;
}

using Ranges = std::vector<ByteRange>;

// Once it is all warm.
WarmReport warmed(const Checkpoint& checkpoint, const WarmOptions& options = {}) {
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  REQUIRE_OK(warmer);
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  return *report;
}

// A fixture that may be changed.
struct Copied {
  TemporaryFolder folder;
  fs::path path = folder.write("model.pt", test::read_file(data / "training.pt"));
};

// Files as the kernel shows them, under a folder of the test.
class FakeRoot {
 public:
  void write(const std::string& name, const std::string& text) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  os::MemoryLimit limit() const { return os::memory_limit(folder_.path()); }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("a set of pages finds what is in it and what is not, across words") {
  PageSet pages(300);
  CHECK(pages.find_in(0, 300) == 300);
  CHECK(pages.find_out(0, 300) == 0);
  pages.add(60, 200);
  pages.add(299, 300);
  pages.add(5, 5);
  CHECK(pages.find_in(0, 300) == 60);
  CHECK(pages.find_in(0, 60) == 60);
  CHECK(pages.find_in(61, 300) == 61);
  CHECK(pages.find_in(200, 300) == 299);
  CHECK(pages.find_out(60, 300) == 200);
  CHECK(pages.find_out(64, 199) == 199);
  CHECK(pages.find_out(299, 300) == 300);
  pages.add(0, 128);
  CHECK(pages.find_out(0, 300) == 200);
}

TEST_CASE("cuts a whole file into steps that end where large pages do") {
  CHECK(steps({{0, 20 * mib + 5}}, 20 * mib + 5) ==
        Ranges{{0, 8 * mib}, {8 * mib, 8 * mib}, {16 * mib, 4 * mib + 5}});
  CHECK(steps({{0, 0}}, 100).empty());
  CHECK(steps({{0, 100}}, 100) == Ranges{{0, 100}});
}

TEST_CASE("keeps the consumer's order and takes each page once") {
  CHECK(steps({{10 * mib, 4 * mib}, {mib / 2, mib}}, 32 * mib) ==
        Ranges{{10 * mib, 4 * mib}, {0, 2 * mib}});
  CHECK(steps({{0, 4 * mib}, {mib, mib}, {3 * mib, 3 * mib}}, 32 * mib) == Ranges{{0, 6 * mib}});
  CHECK(steps({{4 * mib, 2 * mib}, {0, 8 * mib}}, 32 * mib) ==
        Ranges{{4 * mib, 2 * mib}, {0, 4 * mib}, {6 * mib, 2 * mib}});
}

TEST_CASE("takes small ranges by the page and joins near neighbours") {
  CHECK(steps({{5000, 100}}, 32 * mib) == Ranges{{4096, 4096}});
  CHECK(steps({{5000, 100}, {12300, 50}}, 32 * mib) == Ranges{{4096, 12288}});
  CHECK(steps({{5000, 100}, {mib, 50}}, 32 * mib) == Ranges{{4096, 4096}, {mib, 4096}});
  CHECK(steps({{mib, 50}, {5000, 100}}, 32 * mib) == Ranges{{mib, 4096}, {4096, 4096}});
}

TEST_CASE("does not join across pages that another step has") {
  CHECK(steps({{8192, 10}, {0, 10}, {3 * 4096, 10}}, 32 * mib) ==
        Ranges{{8192, 4096}, {0, 4096}, {3 * 4096, 4096}});
}

TEST_CASE("plans small ranges in whole pages of the system, whatever their size") {
  constexpr std::uint64_t kib = 1024;
  CHECK(steps({{5000, 100}}, 32 * mib, 16 * kib) == Ranges{{0, 16 * kib}});
  CHECK(steps({{5000, 100}}, 32 * mib, 64 * kib) == Ranges{{0, 64 * kib}});
  CHECK(steps({{70 * kib, 1}, {mib - 1, 2}}, 32 * mib, 16 * kib) ==
        Ranges{{64 * kib, 16 * kib}, {mib - 16 * kib, 32 * kib}});
  CHECK(steps({{70 * kib, 1}, {mib - 1, 2}}, 32 * mib, 64 * kib) ==
        Ranges{{64 * kib, 64 * kib}, {mib - 64 * kib, 128 * kib}});
  // The last page ends with the file, and one page is in one step.
  CHECK(steps({{mib, 10}, {mib + 5000, 10}}, mib + 6000, 16 * kib) == Ranges{{mib, 6000}});
  CHECK(steps({{mib + 20 * kib, 10}, {mib, 10}}, 32 * mib, 64 * kib) == Ranges{{mib, 64 * kib}});
  // Large ranges are in large pages, which every page divides.
  CHECK(steps({{mib, mib}, {2 * mib + 5, 1}}, 32 * mib, 64 * kib) ==
        Ranges{{0, 2 * mib + 64 * kib}});
}

TEST_CASE("no page of the system is in two steps, and none begins or ends between pages") {
  for (const std::uint64_t page : {4096u, 16384u, 65536u}) {
    CAPTURE(page);
    constexpr std::uint64_t file_bytes = 32 * mib + 12345;
    Ranges ranges;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::uint64_t offset = i * 7'654'321 % (31 * mib);
      ranges.push_back({offset, i % 3 == 0 ? 300'000 + i : 1 + i * 1000 % 200'000});
    }
    std::vector<bool> taken((file_bytes + page - 1) / page);
    const ByteRange file{0, file_bytes};
    const WarmPlanLimits limits{2 * mib + 5000, no_budget, page};
    for (const ByteRange& step : plan_warm_up(ranges, {&file, 1}, limits).steps) {
      REQUIRE(step.offset % page == 0);
      const std::uint64_t end = step.offset + step.length;
      REQUIRE((end % page == 0 || end == file_bytes));
      for (std::uint64_t at = step.offset; at < end; at += page) {
        REQUIRE(!taken[at / page]);
        taken[at / page] = true;
      }
    }
    for (const ByteRange& range : ranges)
      for (std::uint64_t at = range.offset; at < range.offset + range.length; at += page)
        REQUIRE(taken[at / page]);
  }
}

TEST_CASE("no step leaves the source that it began in") {
  const Ranges sources = {{0, 3 * mib + 100}, {4 * mib, 5 * mib}};
  const auto steps_of = [&sources](const Ranges& ranges) {
    return plan_warm_up(ranges, sources, {8 * mib, no_budget, 4096}).steps;
  };
  CHECK(steps_of(sources) == sources);
  CHECK(steps_of({{2 * mib, mib}, {4 * mib + 5, mib}}) ==
        Ranges{{2 * mib, mib + 100}, {4 * mib, 2 * mib}});
  // Small ranges of two sources are not joined, however near.
  CHECK(steps_of({{3 * mib + 90, 10}, {4 * mib, 10}}) == Ranges{{3 * mib, 100}, {4 * mib, 4096}});
}

TEST_CASE("stops at the budget and says what it left out") {
  const Ranges whole = {{0, 8 * mib}};
  const WarmPlan plan = ::plan(whole, 8 * mib, 2 * mib, 5 * mib);
  CHECK(plan.steps == Ranges{{0, 2 * mib}, {2 * mib, 2 * mib}});
  CHECK(plan.bytes == 4 * mib);
  CHECK(plan.bytes_left_out == 4 * mib);
}

TEST_CASE("a window lets a warmer begin what fits, and more when the reader has passed something") {
  const Ranges ranges = {{0, 4 * mib}, {4 * mib, 4 * mib}, {2 * mib, 2 * mib}};
  const WarmPlan plan = ::plan(ranges, 8 * mib, 2 * mib);
  REQUIRE(plan.steps ==
          Ranges{{0, 2 * mib}, {2 * mib, 2 * mib}, {4 * mib, 2 * mib}, {6 * mib, 2 * mib}});
  WarmWindow window(plan, ranges, 4 * mib);
  CHECK(window.wait_for_turn(0));
  CHECK(window.wait_for_turn(1));
  CHECK(!window.loaded(0));
  CHECK(!window.loaded(1));
  // The second step is needed again, so only the first is behind.
  CHECK(window.pass(1) == std::vector<std::size_t>{0});
  CHECK(window.pass(1).empty());
  CHECK(window.wait_for_turn(2));
  std::thread reader([&window] { CHECK(window.pass(2) == std::vector<std::size_t>{3}); });
  // Waits for the reader, who is at it while the third step is still on its way.
  CHECK(!window.wait_for_turn(3));
  reader.join();
  CHECK(window.loaded(2));
  CHECK(window.pass(3) == std::vector<std::size_t>{1});
}

TEST_CASE("a window lets go of what the reader has passed, whoever brought it in") {
  const Ranges ranges = {{0, 2 * mib}, {2 * mib, 2 * mib}};
  const WarmPlan plan = ::plan(ranges, 4 * mib, 2 * mib);
  WarmWindow window(plan, ranges, no_budget);
  CHECK(window.wait_for_turn(0));
  // The first is being loaded, and the second was never begun: the reader brought it in itself.
  CHECK(window.pass(2) == std::vector<std::size_t>{1});
  CHECK(window.loaded(0));
  CHECK(!window.wait_for_turn(1));
}

TEST_CASE("a window takes one step, however small it is, and lets go of whoever waits at the end") {
  const Ranges ranges = {{0, 8 * mib}};
  const WarmPlan plan = ::plan(ranges, 8 * mib, 2 * mib);
  WarmWindow window(plan, ranges, 1);
  CHECK(window.wait_for_turn(0));
  std::thread warmer([&window] { CHECK(!window.wait_for_turn(1)); });
  window.stop();
  warmer.join();
}

TEST_CASE("takes the least of what the machine and each cgroup above have left") {
  FakeRoot root;
  CHECK(root.limit().available == os::MemoryLimit::unknown);
  root.write("proc/meminfo", "MemTotal: 99 kB\nMemAvailable: 1000 kB\n");
  CHECK(root.limit().available == 1000 * 1024);
  CHECK(root.limit().reason == "MemAvailable");
  root.write("proc/self/cgroup", "0::/pods/one\n");
  root.write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  root.write("sys/fs/cgroup/pods/one/memory.current", "5\n");
  CHECK(root.limit().reason == "MemAvailable");
  root.write("sys/fs/cgroup/pods/memory.max", "500000\n");
  root.write("sys/fs/cgroup/pods/memory.current", "300000\n");
  CHECK(root.limit().available == 200000);
  CHECK(root.limit().reason == "memory.max of /pods");
  root.write("sys/fs/cgroup/pods/memory.stat",
             "anon 1\nfile 90000\ninactive_file 50000\nactive_file 40000\n");
  CHECK(root.limit().available == 290000);
  root.write("sys/fs/cgroup/pods/memory.current", "900000\n");
  CHECK(root.limit().available == 0);
}

TEST_CASE("knows the files of the first version of cgroups") {
  FakeRoot root;
  root.write("proc/self/cgroup", "12:cpu,cpuacct:/a\n9:memory:/docker/1f\n");
  root.write("sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "4096000\n");
  root.write("sys/fs/cgroup/memory/docker/1f/memory.usage_in_bytes", "96000\n");
  CHECK(root.limit().available == 4000000);
  CHECK(root.limit().reason == "memory.limit_in_bytes of /docker/1f");
}

TEST_CASE("warms a whole file, and single tensors") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  Result<Warmer> warmer = Warmer::start(checkpoint);
  REQUIRE(warmer.has_value());
  const Result<WarmReport> report = warmer->wait();
  REQUIRE(report.has_value());
  CHECK(report->bytes_done == checkpoint.info().file_bytes);
  CHECK(report->method == (os::host_takes_back_free_memory() ? "copy" : "populate"));
  CHECK(!report->cancelled);
  CHECK(warmer->progress().finished);
  CHECK(warmer->progress().bytes_done == warmer->progress().bytes_all);
  WarmOptions one;
  one.tensors = {3};
  CHECK(Warmer::start(checkpoint, one)->wait()->bytes_done <= 2 * os::page_bytes());
}

TEST_CASE_FIXTURE(Copied, "waiting again answers the same, and for a time whether it would end") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  Result<Warmer> warmer = Warmer::start(checkpoint);
  while (!warmer->wait_for(std::chrono::milliseconds(1))) {
  }
  const WarmReport first = warmer->wait().value();
  CHECK(warmer->wait_for(std::chrono::nanoseconds(0)));
  const WarmReport again = warmer->wait().value();
  CHECK(again.bytes_done == first.bytes_done);
  CHECK(again.method == first.method);
  CHECK(again.time == first.time);

  const Checkpoint truncated = opened(path);
  fs::resize_file(path, 100);
  Result<Warmer> failing = Warmer::start(truncated);
  const Error error = failing->wait().error();
  CHECK(failing->wait().error().message == error.message);
}

TEST_CASE_FIXTURE(Copied, "warms for others without mapping a page") {
  const Checkpoint checkpoint = opened(path);
  WarmOptions options;
  options.for_others = true;
  const WarmReport report = warmed(checkpoint, options);
  CHECK(report.method == "read");
  CHECK(report.method_reason == "it is for other processes");
  CHECK(report.bytes_done == checkpoint.info().file_bytes);
  CHECK(residency(checkpoint)->file.resident_bytes == 0);
}

TEST_CASE("warms without MADV_POPULATE_READ, and says so") {
  test::with_refusals({{SYS_madvise, EINVAL, MADV_POPULATE_READ}}, [] {
    const Checkpoint checkpoint = opened(data / "training.pt");
    const WarmReport report = warmed(checkpoint);
    CHECK(report.method == "read");
    CHECK(report.method_reason == "this kernel does not know MADV_POPULATE_READ");
    CHECK(report.bytes_done == checkpoint.info().file_bytes);
    CHECK(checkpoint.demand(checkpoint.tensors()[0].view).has_value());
    WarmOptions options;
    options.lock = true;
    CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::unsupported,
                "lock needs MADV_POPULATE_READ");
  });
}

TEST_CASE_FIXTURE(Copied, "compares sums behind the warmer, and names the tensor that differs") {
  const Checkpoint good = opened(path);
  WarmOptions options;
  options.verify_crc = true;
  Result<WarmReport> report = Warmer::start(good, options)->wait();
  REQUIRE(report.has_value());
  CHECK(report->crc.storages_checked == Backing(good).storage_count());
  CHECK(report->crc.faults.empty());
  CHECK(report->storages_left_out == 0);

  const NamedTensor weight = *good.get("model.2.weight");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(weight.file_offset));
  file.put('!');
  file.close();
  const Checkpoint bad = opened(path);
  report = Warmer::start(bad, options)->wait();
  REQUIRE(report->crc.faults.size() == 1);
  CHECK(report->crc.faults[0].code == ErrorCode::corrupt);
  CHECK(report->crc.faults[0].message.find("the storage of tensor \"model.2.weight\",") !=
        std::string::npos);
  CHECK(report->crc.faults[0].file_offset == weight.file_offset);

  options.budget_bytes = 1;
  report = Warmer::start(bad, options)->wait();
  CHECK(report->crc.storages_checked == 0);
  CHECK(report->storages_left_out == Backing(bad).storage_count());
}

TEST_CASE("refuses options out of range, and those that exclude one another") {
  const struct {
    WarmOptions options;
    const char* words;
  } refusals[] = {
      {{.threads = 65}, "threads must be at most 64, not 65"},
      {{.step_bytes = 4096}, "step_bytes must be at least 2 MiB, not 4096"},
      {{.tensors = {1000}}, "there is no tensor 1000 of 17"},
      {{.drop_behind = true}, "drop_behind needs follow"},
      {{.follow = true, .drop_behind = true},
       "drop_behind cannot be combined with a private writable checkpoint"},
      {{.follow = true, .drop_behind = true, .verify_crc = true},
       "drop_behind cannot be combined with verify_crc"},
      {{.follow = true, .lock = true}, "lock cannot be combined with follow"},
      {{.lock = true, .for_others = true},
       "lock cannot be combined with for_others, which maps nothing"},
      {{.follow = true, .one_reader = true}, "one_reader cannot be combined with follow"},
  };
  OpenOptions writable;
  writable.sharing = Sharing::private_;
  writable.writable = true;
  const Checkpoint checkpoint = opened(data / "training.pt", writable);
  for (const auto& refusal : refusals) {
    CAPTURE(refusal.words);
    CHECK_FAILS(Warmer::start(checkpoint, refusal.options), ErrorCode::invalid_argument,
                refusal.words);
  }
}

TEST_CASE("follows the consumer, skips what it has passed, and drops what is behind") {
  if (os::page_bytes() > 4096) {
    MESSAGE("SKIPPED: several tensors of the file share a page");
    return;
  }
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.pt";
  fs::copy_file(data / "aligned_4096.pt", path);
  test::write_to_disk(path);
  const EvictReport evicted = evict(path).value();
  const Checkpoint checkpoint = opened(path);
  WarmOptions options;
  options.follow = true;
  options.drop_behind = true;
  options.budget_bytes = 1;  // one step at a time
  // Backwards, so that each tensor is a step of its own.
  for (std::size_t i = checkpoint.tensors().size(); i-- > 0;) options.tensors.push_back(i);
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  REQUIRE(warmer.has_value());
  while (warmer->progress().bytes_done == 0) std::this_thread::yield();
  const std::uint64_t first_step = warmer->progress().bytes_done;
  CHECK(first_step < warmer->progress().bytes_all);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(warmer->progress().bytes_done == first_step);
  CHECK(!warmer->progress().finished);

  warmer->passed(1000);  // not among them
  for (std::size_t tensor : options.tensors) warmer->passed(tensor);
  warmer->passed(options.tensors.front());  // for a second time
  const Result<WarmReport> report = warmer->wait();
  REQUIRE(report.has_value());
  CHECK(report->bytes_left_out == 0);
  CHECK(report->bytes_done <= warmer->progress().bytes_all);
  CHECK(report->bytes_done >= first_step);
  if (evicted.lives_in_memory) {
    MESSAGE("SKIPPED: the temporary folder is in memory");
    return;
  }
  CHECK(residency(checkpoint)->file.cached_bytes < checkpoint.info().file_bytes);
}

TEST_CASE("keeps what it follows unless it was asked to drop it") {
  const Checkpoint checkpoint = opened(data / "aligned_4096.pt");
  WarmOptions options;
  options.follow = true;
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  const Result<WarmReport> report = warmer->wait();  // all of it fits: nobody needs to pass
  REQUIRE(report.has_value());
  for (const NamedTensor& tensor : checkpoint.tensors())
    CHECK(tensor.view.bytes().data() != nullptr);
  warmer->passed(checkpoint.tensors().size() - 1);
  CHECK(residency(checkpoint)->file.resident_bytes > 0);
}

TEST_CASE("a warmer that follows ends when it is cancelled") {
  const Checkpoint checkpoint = opened(data / "aligned_4096.pt");
  WarmOptions options;
  options.follow = true;
  options.budget_bytes = 1;
  for (std::size_t i = checkpoint.tensors().size(); i-- > 0;) options.tensors.push_back(i);
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  warmer->cancel();
  CHECK(warmer->wait()->cancelled);
  { Result<Warmer> forgotten = Warmer::start(checkpoint, options); }
}

TEST_CASE("locks what it brings in, or says how much may be locked") {
  const auto locked_bytes = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmLck:")) return std::stoull(line.substr(6)) * 1024;
    return 0ULL;
  };
  WarmOptions options;
  options.lock = true;
  {
    const Checkpoint checkpoint = opened(data / "training.pt");
    Result<Warmer> warmer = Warmer::start(checkpoint, options);
    REQUIRE(warmer->wait().has_value());
    if (locked_bytes() == 0)
      MESSAGE("SKIPPED: memory is not locked here (AddressSanitizer switches that off)");
    else
      CHECK(locked_bytes() >= checkpoint.info().file_bytes);
  }
  CHECK(locked_bytes() == 0);
}

TEST_CASE("gives way while somebody waits for a tensor") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  std::optional<Gate::Mark> mark(Checkpoint::Access::state(checkpoint).gate);
  WarmOptions options;
  options.threads = 1;
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  mark.reset();
  const Result<WarmReport> report = warmer->wait();
  CHECK(report->bytes_done == checkpoint.info().file_bytes);
}

TEST_CASE("a demand that never ends keeps a warmer neither from its work nor from its end") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  const Gate::Mark mark(Checkpoint::Access::state(checkpoint).gate);
  {
    const Result<Warmer> forgotten = Warmer::start(checkpoint);
    Result<Warmer> warmer = Warmer::start(checkpoint);
    warmer->cancel();
    CHECK(warmer->wait()->cancelled);
  }
  CHECK(Warmer::start(checkpoint)->wait()->bytes_done == checkpoint.info().file_bytes);
}

TEST_CASE("whoever gives way is let go by the last mark's end, by cancelling, and by time") {
  using std::chrono_literals::operator""h;
  std::atomic<bool> cancelled{false};
  Gate gate(1h);
  CHECK(!gate.give_way(cancelled));
  {
    std::optional<Gate::Mark> mark(gate);
    std::optional<Gate::Mark> other(gate);
    std::atomic<bool> has_waited{false};
    std::thread warmer([&] { has_waited = gate.give_way(cancelled); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mark.reset();
    CHECK(gate.is_demanded());
    other.reset();
    warmer.join();
    CHECK(!gate.is_demanded());
  }
  const Gate::Mark mark(gate);
  std::thread warmer([&] { gate.give_way(cancelled); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  cancelled = true;
  gate.wake();
  warmer.join();

  Gate short_gate(std::chrono::milliseconds(1));
  const Gate::Mark for_ever(short_gate);
  cancelled = false;
  CHECK(short_gate.give_way(cancelled));
}

TEST_CASE("demands a tensor, or nothing") {
  const Checkpoint checkpoint = opened(data / "scalars_and_empty.pt");
  for (const NamedTensor& tensor : checkpoint.tensors())
    CHECK(checkpoint.demand(tensor.view).has_value());
  CHECK(!Checkpoint::Access::state(checkpoint).gate.is_demanded());
  CHECK(opened(data / "training.pt").demand(checkpoint.tensors()[0].view).error().code ==
        ErrorCode::invalid_argument);
}

TEST_CASE("a cancelled checksum stops within a storage") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const catalog::Catalog& catalog = *state.placed().value();
  std::atomic<bool> cancelled{true};
  CrcReport report;
  StorageSummer summer(state.sources, catalog);
  CHECK(!summer.check(0, report, cancelled));
  CHECK(report.storages_checked == 0);
  CHECK(report.bytes == 0);
  CHECK(report.faults.empty());
  cancelled = false;
  CHECK(summer.check(0, report, cancelled));
  CHECK(report.storages_checked == 1);
}

// 16 tensors of a MiB.
struct LargeFile {
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";

  LargeFile() {
    const std::string command = std::string(WEIGHTMAP_MAKE_CHECKPOINT) + " '" + path.string() +
                                "' --count 16 --shape 512x512";
    REQUIRE(std::system(command.c_str()) == 0);
    test::write_to_disk(path);
  }
};

TEST_CASE_FIXTURE(LargeFile, "drops what is passed also where the consumer brought it in") {
  const EvictReport evicted = evict(path).value();
  if (evicted.lives_in_memory) {
    MESSAGE("SKIPPED: the temporary folder is in memory");
    return;
  }
  const Checkpoint checkpoint = opened(path);
  WarmOptions options;
  options.follow = true;
  options.drop_behind = true;
  options.budget_bytes = 1;  // one step at a time, so that the consumer is faster
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  REQUIRE_OK(warmer);
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    REQUIRE_OK(checkpoint.demand(tensor.view));
    warmer->passed(tensor.index);
  }
  REQUIRE_OK(warmer->wait());
  // What lies before and behind all tensors stays, and what shares a large page with that.
  CHECK(residency(checkpoint)->file.cached_bytes <= 4 * mib);
}

// How many mappings of this process are of the file.
int mappings_of(const fs::path& path) {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(path.native())) ++count;
  return count;
}

TEST_CASE_FIXTURE(LargeFile, "demands while nothing is read ahead do not split the mapping") {
  const Checkpoint checkpoint = opened(path);
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  mmap::allow_readahead(state.mapping, false);  // as a warm-up of large pages does
  REQUIRE(mappings_of(path) == 1);
  for (const std::size_t tensor : {3u, 9u, 14u, 3u}) {
    const os::File& file = state.sources.front().file;
    mmap::drop_range({file, state.mapping}, 0, file.size());
    REQUIRE_OK(checkpoint.demand(checkpoint.tensors()[tensor].view));
    CHECK(mappings_of(path) == 1);
  }
}

TEST_CASE_FIXTURE(Copied, "says that the file was truncated instead of dying of it") {
  const Checkpoint checkpoint = opened(path);
  fs::resize_file(path, 100);
  Result<Warmer> warmer = Warmer::start(checkpoint);
  CHECK_FAILS(warmer->wait(), ErrorCode::io, "truncated");
  CHECK_FAILS(checkpoint.demand(checkpoint.tensors()[0].view), ErrorCode::io, "");
}
