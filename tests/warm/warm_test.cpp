// Warming: which ranges, how much of them, and what happens meanwhile.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "mmap/direct_reader.hpp"
#include "mmap/file.hpp"
#include "mmap/memory/memory_limit.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/warm/page_set.hpp"
#include "runtime/warm/warm_plan.hpp"
#include "runtime/warm/warm_window.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/residency.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t no_budget = ~std::uint64_t{0};

std::vector<ByteRange> steps(std::vector<ByteRange> ranges, std::uint64_t file_bytes,
                             std::uint64_t step = 8 * mib) {
  return plan_warm_up(ranges, file_bytes, {step, no_budget}).steps;
}

using Ranges = std::vector<ByteRange>;

const fs::path data = WEIGHTMAP_TEST_DATA;

Checkpoint opened(const fs::path& path) { return Checkpoint::open(path).value(); }

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

TEST_CASE("stops at the budget and says what it left out") {
  const Ranges whole = {{0, 8 * mib}};
  const WarmPlan plan = plan_warm_up(whole, 8 * mib, {2 * mib, 5 * mib});
  CHECK(plan.steps == Ranges{{0, 2 * mib}, {2 * mib, 2 * mib}});
  CHECK(plan.bytes == 4 * mib);
  CHECK(plan.bytes_left_out == 4 * mib);
}

TEST_CASE("a window lets a warmer begin what fits, and more when the reader has passed something") {
  using enum WarmWindow::Turn;
  const Ranges ranges = {{0, 4 * mib}, {4 * mib, 4 * mib}, {2 * mib, 2 * mib}};
  const WarmPlan plan = plan_warm_up(ranges, 8 * mib, {2 * mib, no_budget});
  REQUIRE(plan.steps ==
          Ranges{{0, 2 * mib}, {2 * mib, 2 * mib}, {4 * mib, 2 * mib}, {6 * mib, 2 * mib}});
  WarmWindow window(plan, ranges, 4 * mib);
  CHECK(window.wait_for_turn(0) == fill);
  CHECK(window.wait_for_turn(1) == fill);
  CHECK(!window.filled(0));
  CHECK(!window.filled(1));
  // The second step is needed again, so only the first is behind.
  CHECK(window.pass(1) == std::vector<std::size_t>{0});
  CHECK(window.pass(1).empty());
  CHECK(window.wait_for_turn(2) == fill);
  std::thread reader([&window] { CHECK(window.pass(2) == std::vector<std::size_t>{}); });
  // Waits for the reader, who is at it while the third step is still on its way.
  CHECK(window.wait_for_turn(3) == skip);
  reader.join();
  CHECK(window.filled(2));
  CHECK(window.pass(3) == std::vector<std::size_t>{1});
}

TEST_CASE("a window takes one step, however small it is, and lets go of whoever waits at the end") {
  const Ranges ranges = {{0, 8 * mib}};
  const WarmPlan plan = plan_warm_up(ranges, 8 * mib, {2 * mib, no_budget});
  WarmWindow window(plan, ranges, 1);
  CHECK(window.wait_for_turn(0) == WarmWindow::Turn::fill);
  std::thread warmer([&window] { CHECK(window.wait_for_turn(1) == WarmWindow::Turn::stop); });
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
  for (WarmMethod method :
       {WarmMethod::automatic, WarmMethod::populate, WarmMethod::fault, WarmMethod::sequential,
        WarmMethod::read, WarmMethod::readahead, WarmMethod::willneed}) {
    CAPTURE(to_string(method));
    WarmOptions options;
    options.method = method;
    Result<Warmer> warmer = Warmer::start(checkpoint, options);
    REQUIRE(warmer.has_value());
    const Result<WarmReport> report = warmer->wait();
    REQUIRE(report.has_value());
    CHECK(report->bytes_done == checkpoint.info().file_bytes);
    CHECK(report->method != WarmMethod::automatic);
    CHECK(!report->cancelled);
    CHECK(warmer->progress().finished);
    CHECK(warmer->progress().bytes_done == warmer->progress().bytes_all);
  }
  WarmOptions one;
  one.tensors = {3};
  CHECK(Warmer::start(checkpoint, one)->wait()->bytes_done <= 2 * 4096);
}

// A copy of a fixture, on the disk and not in the page cache.
struct ColdCopy {
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";

  ColdCopy() {
    fs::copy_file(data / "training.pt", path);
    const os::File file = os::File::open(path, false).value();
    REQUIRE(::fsync(file.descriptor()) == 0);
    REQUIRE(evict(path).has_value());
  }
  Result<WarmReport> warm_directly(const Checkpoint& checkpoint, WarmOptions options = {}) const {
    options.method = WarmMethod::direct;
    Result<WarmReport> report = Warmer::start(checkpoint, options)->wait();
    if (!report) CHECK(report.error().code == ErrorCode::unsupported);
    if (!report) MESSAGE("SKIPPED: the file system of the temporary folder refuses O_DIRECT");
    return report;
  }
};

TEST_CASE_FIXTURE(ColdCopy, "warms a whole file past the page cache") {
  const Checkpoint checkpoint = opened(path);
  const std::uint64_t cached = residency(checkpoint)->file.cached_bytes;
  const Result<WarmReport> report = warm_directly(checkpoint);
  if (!report) return;
  CHECK(report->method == WarmMethod::direct);
  CHECK(report->method_reason.empty() == os::why_no_io_uring().empty());
  CHECK(report->bytes_done == fs::file_size(path));
  const Residency memory = residency(checkpoint)->file;
  CHECK(memory.cached_bytes == cached);
  CHECK(memory.anonymous_bytes == (fs::file_size(path) + 4095) / 4096 * 4096);
  CHECK(memory.resident_bytes == memory.anonymous_bytes);
  const Checkpoint original = opened(data / "training.pt");
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const std::span<const std::byte> bytes = tensor.view.bytes();
    const std::span<const std::byte> expected = original.tensors()[tensor.index].view.bytes();
    CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
    CHECK(checkpoint.demand(tensor.view).has_value());
  }
}

TEST_CASE_FIXTURE(ColdCopy, "says why it did without io_uring") {
  const Checkpoint checkpoint = opened(path);
  test::with_refusals({test::no_io_uring}, [&] {
    const Result<WarmReport> report = warm_directly(checkpoint);
    if (!report) return;
    CHECK(report->method == WarmMethod::direct);
    CHECK(report->method_reason ==
          "read by pread, since the system refuses io_uring: Operation not permitted");
    CHECK(report->bytes_done == fs::file_size(path));
  });
}

TEST_CASE_FIXTURE(ColdCopy, "warms single tensors past the page cache, with several threads") {
  const Checkpoint checkpoint = opened(path);
  const std::uint64_t cached = residency(checkpoint)->file.cached_bytes;
  WarmOptions options;
  options.threads = 4;
  options.tensors = {8, 3};
  const Result<WarmReport> report = warm_directly(checkpoint, options);
  if (!report) return;
  CHECK(residency(checkpoint)->file.anonymous_bytes == report->bytes_done);
  CHECK(residency(checkpoint)->file.cached_bytes == cached);
}

TEST_CASE("does not warm past the page cache what cannot be, and says so at once") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.pt";
  fs::copy_file(data / "training.pt", path);
  WarmOptions options;
  options.method = WarmMethod::direct;
  OpenOptions writable;
  writable.writable = true;
  for (Sharing sharing : {Sharing::shared, Sharing::private_}) {
    writable.sharing = sharing;
    CHECK_FAILS(Warmer::start(Checkpoint::open(path, writable).value(), options),
                ErrorCode::unsupported, "a writable mapping cannot be filled past");
  }
  options.verify_crc = true;
  CHECK_FAILS(Warmer::start(opened(path), options), ErrorCode::invalid_argument,
              "which direct reads go past");
}

TEST_CASE("warms with several threads") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  WarmOptions options;
  options.threads = 8;
  CHECK(Warmer::start(checkpoint, options)->wait()->bytes_done == checkpoint.info().file_bytes);
}

TEST_CASE("compares sums behind the warmer, and names the tensor that differs") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.pt";
  fs::copy_file(data / "training.pt", path);
  const Checkpoint good = opened(path);
  WarmOptions options;
  options.verify_crc = true;
  Result<WarmReport> report = Warmer::start(good, options)->wait();
  REQUIRE(report.has_value());
  CHECK(report->crc.storages_checked == good.storage_count());
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
  CHECK(report->storages_left_out == bad.storage_count());
}

TEST_CASE("refuses options out of range") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  WarmOptions options;
  options.threads = 0;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument, "1 to 64 threads");
  options = {};
  options.step_bytes = 4096;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument, "at least 2 MiB");
  options = {};
  options.tensors = {1000};
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "there is no tensor 1000 of 17");
}

TEST_CASE("refuses options that exclude one another") {
  OpenOptions writable;
  writable.sharing = Sharing::private_;
  writable.writable = true;
  const Checkpoint checkpoint = Checkpoint::open(data / "training.pt", writable).value();
  WarmOptions options;
  options.drop_behind = true;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "drop_behind needs follow");
  options.follow = true;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "would lose what was written");
  options.verify_crc = true;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "what verify_crc has not summed");
  options = {};
  options.lock = true;
  options.follow = true;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "what is locked cannot follow");
  options.follow = false;
  options.method = WarmMethod::read;
  CHECK_FAILS(Warmer::start(checkpoint, options), ErrorCode::invalid_argument,
              "the method read maps no pages");
}

TEST_CASE("follows the consumer, skips what it has passed, and drops what is behind") {
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
  CHECK(report->bytes_done + report->bytes_skipped == warmer->progress().bytes_all);
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
  auto& demands = Checkpoint::Access::state(checkpoint).demands;
  ++demands;
  WarmOptions options;
  options.threads = 1;
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(warmer->progress().bytes_done == 0);
  CHECK(!warmer->progress().finished);
  --demands;
  demands.notify_all();
  const Result<WarmReport> report = warmer->wait();
  CHECK(report->bytes_done == checkpoint.info().file_bytes);
  CHECK(report->waits_for_demands == 1);
}

TEST_CASE("stops when it is cancelled, and when it is destroyed") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  auto& demands = Checkpoint::Access::state(checkpoint).demands;
  ++demands;
  {
    Result<Warmer> warmer = Warmer::start(checkpoint);
    Result<Warmer> other = Warmer::start(checkpoint);
    warmer->cancel();
    --demands;
    demands.notify_all();
    const Result<WarmReport> report = warmer->wait();
    CHECK(report->cancelled);
    CHECK(report->bytes_done == 0);
  }
  CHECK(opened(data / "training.pt").demand(checkpoint.tensors()[0].view).error().code ==
        ErrorCode::invalid_argument);
}

TEST_CASE("demands a tensor, or nothing") {
  const Checkpoint checkpoint = opened(data / "scalars_and_empty.pt");
  for (const NamedTensor& tensor : checkpoint.tensors())
    CHECK(checkpoint.demand(tensor.view).has_value());
  CHECK(Checkpoint::Access::state(checkpoint).demands == 0);
}

TEST_CASE("says that the file was cut short instead of dying of it") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.pt";
  fs::copy_file(data / "training.pt", path);
  const Checkpoint checkpoint = opened(path);
  fs::resize_file(path, 100);
  Result<Warmer> warmer = Warmer::start(checkpoint);
  CHECK_FAILS(warmer->wait(), ErrorCode::io, "cut short");
  CHECK_FAILS(checkpoint.demand(checkpoint.tensors()[0].view), ErrorCode::io, "");
}
