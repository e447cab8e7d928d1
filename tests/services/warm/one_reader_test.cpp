// One reader for all who warm a file: the lock, who waits, and who reads on.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/warm/warm_election.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/process/process_lock.hpp"
#include "runtime/system/process/runtime_directory.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/held_pages.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
namespace fs = std::filesystem;

namespace {

// A runtime directory of its own, and a copy of a fixture on the disk, not in the page cache.
struct Fixture {
  test::TemporaryFolder folder;
  fs::path shared = folder.path() / "shared";
  fs::path path = folder.path() / "model.pt";
  bool can_be_cold = false;

  Fixture() {
    ::setenv("WEIGHTMAP_RUNTIME_DIR", shared.c_str(), 1);
    fs::copy_file(fs::path(WEIGHTMAP_TEST_DATA) / "aligned_4096.pt", path);
    test::write_to_disk(path);
  }
  ~Fixture() { ::unsetenv("WEIGHTMAP_RUNTIME_DIR"); }

  // Not even what opening has read is cached then.
  Checkpoint opened_cold() {
    Checkpoint checkpoint = Checkpoint::open(path).value();
    const Result<EvictReport> evicted = evict(path);
    can_be_cold = evicted && evicted->cached_after == 0;
    if (!can_be_cold) MESSAGE("SKIPPED: the temporary folder is in memory, nothing is cold there");
    return checkpoint;
  }
  os::RuntimeDirectory directory() const { return os::RuntimeDirectory::open().value(); }
  std::string lock_name() const {
    return "warm-" + os::key_of(os::File::open(path, false)->generation()) + ".lock";
  }
  bool directory_is_empty() const { return fs::is_empty(shared); }
};

// Another process, which ends when it is told to or with this object.
class Child {
 public:
  // Returns once `begin` has, in the child.
  explicit Child(const std::function<bool()>& begin) {
    int channel[2];
    REQUIRE(::pipe2(channel, O_CLOEXEC) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      const char answer = begin() ? 1 : 0;
      static_cast<void>(!::write(channel[1], &answer, 1));
      for (;;) ::pause();
    }
    ::close(channel[1]);
    char answer = 0;
    said_yes_ = ::read(channel[0], &answer, 1) == 1 && answer == 1;
    ::close(channel[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }
  bool said_yes() const { return said_yes_; }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
  bool said_yes_ = false;
};

// Whether another process could have the lock now.
bool is_free_for_others(const os::RuntimeDirectory& directory, const std::string& name) {
  return Child([&] {
           const auto lock = os::ProcessLock::try_lock(directory, name);
           return lock && lock->has_value();
         })
      .said_yes();
}

// Has the lock until it is killed.
struct Holder : Child {
  Holder(const os::RuntimeDirectory& directory, const std::string& name)
      : Child([&] {
          auto lock = os::ProcessLock::try_lock(directory, name);
          if (!lock || !lock->has_value()) return false;
          new std::optional<os::ProcessLock>(std::move(*lock));  // for good
          return true;
        }) {
    REQUIRE(said_yes());
  }
};

WarmOptions one_reader() {
  WarmOptions options;
  options.one_reader = true;
  return options;
}

// Once it is all warm.
WarmReport warmed(const Checkpoint& checkpoint, const WarmOptions& options = one_reader()) {
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  REQUIRE_OK(warmer);
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  return *report;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a lock excludes threads of its process and other processes") {
  const os::RuntimeDirectory there = directory();
  {
    const auto lock = os::ProcessLock::try_lock(there, "a");
    REQUIRE_OK(lock);
    REQUIRE(lock->has_value());
    const auto second = os::ProcessLock::try_lock(there, "a");
    REQUIRE_OK(second);
    CHECK(!second->has_value());
    CHECK(!is_free_for_others(there, "a"));
    CHECK(fs::exists(shared / "a"));
  }
  CHECK(directory_is_empty());
  CHECK(is_free_for_others(there, "a"));
}

TEST_CASE_FIXTURE(Fixture, "a lock ends with its process, whatever file is left") {
  const os::RuntimeDirectory there = directory();
  Holder holder(there, "a");
  CHECK(!os::ProcessLock::try_lock(there, "a")->has_value());
  holder.kill();
  CHECK(fs::exists(shared / "a"));
  CHECK(os::ProcessLock::try_lock(there, "a")->has_value());
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "a forked child has no part in its parent's lock") {
  const os::RuntimeDirectory there = directory();
  auto lock = os::ProcessLock::try_lock(there, "a");
  REQUIRE(lock->has_value());
  Child child([&] {
    const bool is_free = os::ProcessLock::try_lock(there, "a")->has_value();
    lock->reset();
    return !is_free && fs::exists(shared / "a");
  });
  CHECK(child.said_yes());
  child.kill();
  CHECK(!is_free_for_others(there, "a"));
  lock->reset();
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "refuses a planted lock file") {
  const os::RuntimeDirectory there = directory();
  REQUIRE(os::open_own_file(there, "a", O_RDWR | O_CREAT));
  REQUIRE(::chmod((shared / "a").c_str(), 0666) == 0);
  CHECK_FAILS(os::ProcessLock::try_lock(there, "a"), ErrorCode::io, "lets other users in");
  fs::create_symlink(folder.path() / "elsewhere", shared / "link");
  CHECK_FAILS(os::ProcessLock::try_lock(there, "link"), ErrorCode::io, "cannot open");
  CHECK(!fs::exists(folder.path() / "elsewhere"));
}

TEST_CASE_FIXTURE(Fixture, "removes what killed processes have left, and nothing else") {
  const os::RuntimeDirectory there = directory();
  Holder(there, "warm-dead").kill();
  const Holder alive(there, "warm-alive");
  const auto own = os::ProcessLock::try_lock(there, "warm-own");
  REQUIRE(os::open_own_file(there, "other", O_RDWR | O_CREAT));
  os::remove_left_locks(there, "warm-");
  CHECK(!fs::exists(shared / "warm-dead"));
  CHECK(fs::exists(shared / "warm-alive"));
  CHECK(fs::exists(shared / "warm-own"));
  CHECK(fs::exists(shared / "other"));
  CHECK(!is_free_for_others(there, "warm-own"));
}

TEST_CASE_FIXTURE(Fixture, "a reader removes lock files of files that are gone") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  Holder(directory(), "warm-1-2-3-4-5.lock").kill();
  warmed(checkpoint);
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "one warmer alone is the reader, and leaves nothing") {
  const Checkpoint checkpoint = opened_cold();
  const WarmReport report = warmed(checkpoint);
  CHECK(report.bytes_done == checkpoint.info().file_bytes);
  CHECK(report.was_reader == can_be_cold);
  CHECK(report.takeovers == 0);
  CHECK((report.bytes_read > 0) == can_be_cold);
  CHECK(report.why_alone == "");
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "what is cached needs no reader") {
  const Checkpoint checkpoint = opened_cold();
  const test::HeldPages held(path);
  const Holder stopped(directory(), lock_name());
  const WarmReport report = warmed(checkpoint);
  CHECK(report.bytes_done == checkpoint.info().file_bytes);
  CHECK(!report.was_reader);
  CHECK(report.bytes_waited_for == 0);
}

TEST_CASE_FIXTURE(Fixture, "two checkpoints of one process elect one, too") {
  const Checkpoint first = Checkpoint::open(path).value();
  const Checkpoint second = opened_cold();
  Result<Warmer> one = Warmer::start(first, one_reader());
  Result<Warmer> two = Warmer::start(second, one_reader());
  const Result<WarmReport> of_one = one->wait();
  const Result<WarmReport> of_two = two->wait();
  REQUIRE_OK(of_one);
  REQUIRE_OK(of_two);
  CHECK(of_one->bytes_done == fs::file_size(path));
  CHECK(of_two->bytes_done == fs::file_size(path));
  CHECK((of_one->was_reader || of_two->was_reader) == can_be_cold);
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "waits for a reader that brings nothing, until it is cancelled") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  const Holder stopped(directory(), lock_name());
  Result<Warmer> warmer = Warmer::start(checkpoint, one_reader());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!warmer->progress().finished);
  // Whoever needs a tensor goes ahead.
  CHECK(checkpoint.demand(checkpoint.tensors()[0].view).has_value());
  warmer->cancel();
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  CHECK(report->cancelled);
  CHECK(!report->was_reader);
}

TEST_CASE_FIXTURE(Fixture, "reads for itself when the reader is stopped for too long") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  const Holder stopped(directory(), lock_name());
  WarmOptions options = one_reader();
  options.reader_patience = std::chrono::milliseconds(3);
  const WarmReport report = warmed(checkpoint, options);
  CHECK(report.bytes_done == fs::file_size(path));
  CHECK(!report.was_reader);
  CHECK(report.takeovers == 0);
  CHECK(report.bytes_read > 0);
  CHECK(report.why_alone == "the process that reads for all has given no sign of life for 3 ms");
}

TEST_CASE_FIXTURE(Fixture, "a reader gives a sign of life with each step") {
  const Checkpoint checkpoint = opened_cold();
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const os::RuntimeDirectory there = directory();
  CHECK(os::last_sign_of_life(there, lock_name()) == 0);
  const std::vector<ByteRange> steps = {{0, 1}};
  WarmElection reader(state.sources, state.mapping, steps, std::chrono::hours(1));
  const std::atomic<bool> cancelled{false};
  const auto take_step = [&] { return reader.wait_for(0, cancelled); };
  if (take_step() == WarmElection::Turn::map) {
    MESSAGE("SKIPPED: nothing is cold here");
    return;
  }
  const timespec long_ago[2] = {{5, 0}, {5, 7}};
  REQUIRE(::utimensat(AT_FDCWD, (shared / lock_name()).c_str(), long_ago, 0) == 0);
  CHECK(os::last_sign_of_life(there, lock_name()) == 5'000'000'007);
  take_step();
  CHECK(os::last_sign_of_life(there, lock_name()) > 5'000'000'007);
}

TEST_CASE_FIXTURE(Fixture, "reads on when the reader is killed") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  Holder reader(directory(), lock_name());
  Result<Warmer> warmer = Warmer::start(checkpoint, one_reader());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE(!warmer->progress().finished);
  reader.kill();
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  CHECK(report->was_reader);
  CHECK(report->takeovers == 1);
  CHECK(report->bytes_done == fs::file_size(path));
  CHECK(directory_is_empty());
}

TEST_CASE_FIXTURE(Fixture, "counts what another read meanwhile") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  const Holder reader(directory(), lock_name());
  WarmOptions options = one_reader();
  options.threads = 1;
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const test::HeldPages held(path);
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  CHECK(!report->was_reader);
  CHECK(report->bytes_read == 0);
  CHECK(report->bytes_waited_for > 0);
  CHECK(report->bytes_waited_for <= fs::file_size(path));
  CHECK(report->bytes_done == fs::file_size(path));
}

TEST_CASE_FIXTURE(Fixture, "warms for itself where nobody can be elected, and says why") {
  const Checkpoint checkpoint = opened_cold();
  if (!can_be_cold) return;
  std::string why;
  SUBCASE("without a runtime directory") {
    ::setenv("WEIGHTMAP_RUNTIME_DIR", (folder.path() / "no" / "such").c_str(), 1);
    why = "cannot make the folder";
  }
  SUBCASE("with a lock file that somebody else may open") {
    REQUIRE(os::open_own_file(directory(), lock_name(), O_RDWR | O_CREAT));
    REQUIRE(::chmod((shared / lock_name()).c_str(), 0666) == 0);
    why = "lets other users in";
  }
  const WarmReport report = warmed(checkpoint);
  CHECK(report.bytes_done == fs::file_size(path));
  CHECK(!report.was_reader);
  CHECK(report.why_alone.find(why) != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "one reader goes with sums and with locked memory") {
  const Checkpoint checkpoint = opened_cold();
  WarmOptions options = one_reader();
  options.verify_crc = true;
  options.lock = true;
  const Result<WarmReport> report = Warmer::start(checkpoint, options)->wait();
  if (!report && report.error().message.find("cannot lock") == 0) {
    MESSAGE("SKIPPED: " << report.error().message);
    return;
  }
  REQUIRE_OK(report);
  CHECK(report->crc.storages_checked == Backing(checkpoint).storage_count());
  CHECK(report->crc.faults.empty());
}

TEST_CASE_FIXTURE(Fixture, "names the folder where processes meet") {
  CHECK(*runtime_directory() == shared);
  ::chmod(shared.c_str(), 0755);
  CHECK_FAILS(runtime_directory(), ErrorCode::io, "lets other users in");
}
