// Copies of checkpoints in shared memory, and opening what is only a descriptor.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "mmap/mapping.hpp"
#include "mmap/memory/copy_file.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/memory/shared_file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/held_pages.hpp"
#include "tests/support/passed_descriptor.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/without_proc.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using os::UniqueFd;
using test::data;
using test::read_file;
using test::TemporaryFolder;
using test::with_refusals;
namespace fs = std::filesystem;

namespace {

const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

const Progress no_progress;

// A copy of a fixture, on the disk.
struct CopyFixture {
  TemporaryFolder folder;
  fs::path path = folder.write("model.pt", read_file(data / "aligned_4096.pt"));
  std::string name = "weightmap-test-" + std::to_string(::getpid());

  CopyFixture() { test::write_to_disk(path); }
  ~CopyFixture() { fs::remove("/dev/shm/" + name); }

  StageOptions named() const {
    StageOptions options;
    options.name = name;
    return options;
  }
  // Answers a source of this size, of which nothing is cached where that can be had.
  os::File make(std::uint64_t size) const {
    std::string content(size, '\0');
    for (std::uint64_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
    const fs::path file = folder.write("file", content);
    test::write_to_disk(file);
    os::File opened = os::File::open(file, false).value();
    REQUIRE_OK(mmap::evict(opened));
    return opened;
  }
};

std::string content_of(int descriptor) {
  return read_file("/proc/self/fd/" + std::to_string(descriptor));
}

// Other tests may run at the same time, so only names that are made of this one count.
std::set<std::string> shared_names(const std::string& name) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm"))
    if (entry.path().native().find(name) != std::string::npos)
      names.insert(entry.path().filename());
  return names;
}

// What a child's work answers.
template <class Work>
int status_of_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

// By a descriptor that may write.
void check_refuses_writes(int descriptor) {
  CHECK(::pwrite(descriptor, "x", 1, 0) == -1);
  CHECK(errno == EPERM);
  for (const off_t size : {0, 1 << 20}) {
    CHECK(::ftruncate(descriptor, size) == -1);
    CHECK(errno == EPERM);
  }
  for (const int rights : {PROT_WRITE, PROT_READ | PROT_WRITE}) {
    CHECK(::mmap(nullptr, page, rights, MAP_SHARED, descriptor, 0) == MAP_FAILED);
    CHECK(errno == EPERM);
  }
}

std::size_t count_tensors(const fs::path& path) {
  const Checkpoint checkpoint = Checkpoint::open(path).value();
  return checkpoint.tensors().size();
}

bool opens(int descriptor, std::size_t tensors) {
  const Result<Checkpoint> checkpoint = Checkpoint::open_descriptor(descriptor);
  return checkpoint && checkpoint->tensors().size() == tensors;
}

bool lives_in_cache_only(const os::File& file) {
  if (!mmap::lives_in_memory(file)) return false;
  MESSAGE("SKIPPED: the temporary folder is in memory, where nothing can be evicted");
  return true;
}

}  // namespace

// --- memory ------------------------------------------------------------------------------------

TEST_CASE("memory that is sealed cannot be changed, by its maker neither") {
  const UniqueFd memory = os::make_memfd(3 * page).value();
  REQUIRE(::pwrite(memory.get(), "abc", 3, 0) == 3);
  REQUIRE_OK(os::seal(memory.get()));
  check_refuses_writes(memory.get());
  CHECK(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1);
  CHECK(errno == EPERM);
  CHECK(content_of(memory.get()).substr(0, 4) == std::string("abc\0", 4));
}

TEST_CASE("memory is not sealed while somebody can write to it") {
  const UniqueFd memory = os::make_memfd(page).value();
  void* const mapped = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK_FAILS(os::seal(memory.get()), ErrorCode::io, "cannot seal shared memory: Device or");
  ::munmap(mapped, page);
  CHECK(os::seal(memory.get()).has_value());
}

TEST_CASE("memory has a label that is cut, and any size") {
  const UniqueFd memory = os::make_memfd(0, std::string(1000, 'n')).value();
  const std::string link = fs::read_symlink(os::path_of_descriptor(memory.get()));
  CHECK(link == "/memfd:" + std::string(200, 'n') + " (deleted)");
  CHECK((::fcntl(memory.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_FAILS(os::make_memfd(~std::uint64_t{0}), ErrorCode::io,
              "cannot make a file of 18446744073709551615");
}

TEST_CASE("says so where the system makes no such memory") {
  with_refusals({{SYS_memfd_create, EINVAL}}, [] {
    CHECK_FAILS(os::make_memfd(page), ErrorCode::io, "shared memory (memfd): Invalid argument");
  });
}

// --- copying -----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CopyFixture,
                  "copies files of any size, byte by byte" * doctest::test_suite("exhaustive")) {
  for (const std::uint64_t size :
       {std::uint64_t{1}, page, page + 1, 2 * mib - 1, 2 * mib, 8 * mib + 1, 9 * mib + 12345}) {
    const os::File source = make(size);
    const auto copies = [&] {
      const UniqueFd memory = os::make_memfd(size).value();
      const Result<mmap::CopyReport> report =
          mmap::copy_to_memory(source, memory.get(), no_progress);
      REQUIRE_OK(report);
      CHECK(report->direct_bytes + report->cached_bytes + report->dropped_bytes == size);
      CHECK(content_of(memory.get()) == content_of(source.descriptor()));
      REQUIRE_OK(mmap::evict(source));
    };
    copies();
    with_refusals({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}}, copies);
    with_refusals({{SYS_openat, EINVAL, O_DIRECT}}, copies);
  }
}

TEST_CASE_FIXTURE(CopyFixture, "leaves nothing of the source in the page cache") {
  const os::File source = make(9 * mib + 5);
  if (lives_in_cache_only(source)) return;
  REQUIRE(mmap::cached_bytes_of(source).value() == 0);
  const UniqueFd memory = os::make_memfd(source.size()).value();
  const mmap::CopyReport report = mmap::copy_to_memory(source, memory.get(), no_progress).value();
  CHECK(mmap::cached_bytes_of(source).value() == 0);
  if (!report.why_not_direct.empty()) MESSAGE("no direct reads: " << report.why_not_direct);
}

TEST_CASE_FIXTURE(CopyFixture, "drops what it had to read through the page cache, and only that") {
  const os::File source = make(5 * mib);
  if (lives_in_cache_only(source)) return;
  test::HeldPages held;
  held.hold(folder.path() / "file", 3 * mib, page);
  const std::uint64_t before = mmap::cached_bytes_of(source).value();
  REQUIRE(before == page);
  with_refusals({{SYS_openat, EINVAL, O_DIRECT}}, [&] {
    const UniqueFd memory = os::make_memfd(source.size()).value();
    const mmap::CopyReport report = mmap::copy_to_memory(source, memory.get(), no_progress).value();
    CHECK(report.why_not_direct.find("O_DIRECT") != std::string::npos);
    CHECK(report.direct_bytes == 0);
    CHECK(report.cached_bytes == before);
    CHECK(report.dropped_bytes == source.size() - before);
    CHECK(mmap::cached_bytes_of(source).value() == before);
    CHECK(content_of(memory.get()) == content_of(source.descriptor()));
  });
}

TEST_CASE_FIXTURE(CopyFixture, "copies what is cached from there, with no read of the disk") {
  const os::File source = make(3 * mib);
  const test::HeldPages held(folder.path() / "file");
  const UniqueFd memory = os::make_memfd(source.size()).value();
  const mmap::CopyReport report = mmap::copy_to_memory(source, memory.get(), no_progress).value();
  CHECK(report.cached_bytes == 3 * mib);
  CHECK(report.direct_bytes == 0);
  CHECK(report.dropped_bytes == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "says so if the source is truncated on the way, or the disk fails") {
  const os::File source = make(20 * mib);
  const UniqueFd memory = os::make_memfd(source.size()).value();
  const Progress cut = test::meanwhile([&] { fs::resize_file(folder.path() / "file", mib); });
  with_refusals({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}}, [&] {  // a piece after the other
    CHECK_FAILS(mmap::copy_to_memory(source, memory.get(), cut), ErrorCode::io, "the file");
  });
  const os::File whole = make(3 * mib);
  with_refusals({{SYS_pread64, EIO}}, [&] {
    const UniqueFd other = os::make_memfd(whole.size()).value();
    CHECK_FAILS(mmap::copy_to_memory(whole, other.get(), no_progress), ErrorCode::io,
                "Input/output error");
  });
}

TEST_CASE_FIXTURE(CopyFixture, "says so where memory runs out, without a signal") {
  const os::File source = make(3 * mib);
  with_refusals({{SYS_fallocate, ENOSPC}}, [&] {
    const UniqueFd memory = os::make_memfd(source.size()).value();
    CHECK_FAILS(mmap::copy_to_memory(source, memory.get(), no_progress), ErrorCode::io,
                "cannot get 2097152 bytes of shared memory: No space left on device");
  });
}

TEST_CASE("reads more at a time where the file system may be remote") {
  for (const std::uint64_t local : {0xef53u, 0x58465342u, 0x9123683eu, 0x01021994u})
    CHECK(mmap::reads_of_file_system(local) == 8);  // ext4, xfs, btrfs, tmpfs
  for (const std::uint64_t remote : {0x6969u, 0xff534d42u, 0x65735546u, 0x00c36400u, 12345u})
    CHECK(mmap::reads_of_file_system(remote) == 32);  // NFS, SMB, FUSE, Ceph, and what nobody knows
}

TEST_CASE_FIXTURE(CopyFixture, "progress is told by the caller's thread, and ends with all bytes") {
  const os::File source = make(9 * mib + 5);
  const UniqueFd memory = os::make_memfd(source.size()).value();
  const std::thread::id here = std::this_thread::get_id();
  std::vector<std::uint64_t> told;
  const Progress progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(std::this_thread::get_id() == here);
    CHECK(all == source.size());
    told.push_back(done);
    return true;
  };
  REQUIRE_OK(mmap::copy_to_memory(source, memory.get(), progress));
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.back() == source.size());
}

TEST_CASE_FIXTURE(CopyFixture, "a large copy is mapped as large pages wherever it has such") {
  const os::File source = make(9 * mib + 5);
  const UniqueFd memory = os::make_memfd(source.size()).value();
  const mmap::CopyReport report = mmap::copy_to_memory(source, memory.get(), no_progress).value();
  if (report.huge_bytes == 0) {
    MESSAGE("SKIPPED: the system gives shared memory no pages of 2 MiB");
    return;
  }
  CHECK(report.huge_bytes == 8 * mib);
  const os::File copy = os::File::from_descriptor(memory.get()).value();
  for (const Sharing sharing : {Sharing::shared, Sharing::private_}) {
    mmap::MapOptions options;
    options.sharing = sharing;
    options.populate = true;
    const mmap::Mapping mapping = mmap::Mapping::map(copy, options).value();
    CHECK(mmap::mapped_memory(mapping.bytes()).value().huge == 8 * mib);
  }
}

// --- stage() -----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CopyFixture, "a staged copy has the bytes and tensors of the file") {
  const StagedFile staged = stage(path).value();
  CHECK(content_of(staged.descriptor()) == read_file(path));
  CHECK(read_file(staged.path()) == read_file(path));
  const Checkpoint source = Checkpoint::open(path).value();
  const Checkpoint copy = Checkpoint::open_descriptor(staged.descriptor()).value();
  REQUIRE(copy.tensors().size() == source.tensors().size());
  for (const NamedTensor& tensor : source.tensors()) {
    const NamedTensor same = copy.tensors()[tensor.index];
    CHECK(same.name == tensor.name);
    CHECK(std::memcmp(same.view.bytes().data(), tensor.view.bytes().data(),
                      tensor.view.bytes().size()) == 0);
  }
  CHECK(verify_crc(copy).faults.empty());
  CHECK(staged.report().file_bytes == fs::file_size(path));
  CHECK(lives_in_memory(copy));
}

TEST_CASE_FIXTURE(CopyFixture, "a staged copy is sealed, whoever opens it") {
  const StagedFile staged = stage(path).value();
  CHECK(staged.report().sealed);
  CHECK(staged.pinnable_memory().empty());
  const UniqueFd writing(::open(staged.path().c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(writing.get() >= 0);
  CHECK(::fcntl(writing.get(), F_GET_SEALS) >=
        (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
  check_refuses_writes(writing.get());
}

TEST_CASE_FIXTURE(CopyFixture,
                  "a pinnable copy is written to through one mapping, and no other way") {
  StageOptions options;
  options.pinnable = true;
  const StagedFile staged = stage(path, options).value();
  CHECK(staged.report().sealed);
  const std::span<std::byte> memory = staged.pinnable_memory();
  REQUIRE(memory.size() == fs::file_size(path));
  CHECK(std::memcmp(memory.data(), read_file(path).data(), memory.size()) == 0);
  const UniqueFd writing(::open(staged.path().c_str(), O_RDWR | O_CLOEXEC));
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  CHECK((::fcntl(writing.get(), F_GET_SEALS) & (seals | F_SEAL_WRITE)) == seals);
  check_refuses_writes(writing.get());
  const Checkpoint copy = Checkpoint::open_descriptor(staged.descriptor()).value();
  memory[0] = std::byte{'x'};
  CHECK(copy.mapping()[0] == std::byte{'x'});
}

TEST_CASE_FIXTURE(CopyFixture, "a copy with a name is not pinnable") {
  StageOptions options;
  options.name = name;
  options.pinnable = true;
  CHECK_FAILS(stage(path, options), ErrorCode::invalid_argument,
              "pinnable is for copies without a name");
  CHECK(!fs::exists(fs::path("/dev/shm") / name));
}

TEST_CASE_FIXTURE(CopyFixture, "a staged copy outlives its maker with whoever has it open") {
  std::optional<Checkpoint> copy;
  fs::path gone;
  {
    StagedFile staged = stage(path).value();
    gone = staged.path();
    StagedFile moved = std::move(staged);
    copy = Checkpoint::open(moved.path()).value();
  }
  CHECK_FALSE(fs::exists(gone));
  CHECK(verify_crc(*copy).faults.empty());
}

TEST_CASE_FIXTURE(CopyFixture, "warming, residency and eviction have answers for a staged copy") {
  const StagedFile staged = stage(path).value();
  const Checkpoint copy = Checkpoint::open_descriptor(staged.descriptor()).value();
  const std::uint64_t size = fs::file_size(path);
  CHECK(residency(copy).value().file.cached_bytes == size);
  CHECK(Warmer::start(copy).value().wait().value().bytes_done == size);
  const EvictReport evicted = evict(staged.path()).value();
  CHECK(evicted.cached_after == size);
  CHECK(evicted.lives_in_memory);
  CHECK(verify_crc(copy).faults.empty());
}

TEST_CASE_FIXTURE(CopyFixture, "a copy with a name is a file of its user's in /dev/shm") {
  {
    const StagedFile staged = stage(path, named()).value();
    CHECK(staged.path() == "/dev/shm/" + name);
    CHECK_FALSE(staged.report().sealed);
  }
  struct stat status {};
  REQUIRE(::stat(("/dev/shm/" + name).c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(read_file("/dev/shm/" + name) == read_file(path));
  CHECK_FAILS(stage(path, named()), ErrorCode::invalid_argument, "is there already; remove it");
  REQUIRE_OK(remove_staged(name));
  CHECK_FALSE(fs::exists("/dev/shm/" + name));
  CHECK_FAILS(remove_staged(name), ErrorCode::io, "No such file");
}

TEST_CASE_FIXTURE(CopyFixture, "takes no name that is none") {
  for (const std::string& wrong :
       {std::string("a/b"), std::string("../etc"), std::string("."), std::string(".hidden"),
        std::string("a\0b", 3), std::string(256, 'n')}) {
    StageOptions options;
    options.name = wrong;
    CHECK_FAILS(stage(path, options), ErrorCode::invalid_argument, "is no name for shared memory");
    CHECK_FAILS(remove_staged(wrong), ErrorCode::invalid_argument, "is no name for shared memory");
  }
  CHECK_FAILS(remove_staged(""), ErrorCode::invalid_argument, "is no name for shared memory");
}

TEST_CASE_FIXTURE(CopyFixture, "removes files and nothing else") {
  fs::create_directory("/dev/shm/" + name);
  CHECK_FAILS(remove_staged(name), ErrorCode::invalid_argument, "is no regular file of this user");
  CHECK_FAILS(stage(path, named()), ErrorCode::invalid_argument, "is there already");
  CHECK(fs::is_directory("/dev/shm/" + name));
}

TEST_CASE_FIXTURE(CopyFixture, "a name that was taken on the way stays what it is") {
  StageOptions options = named();
  options.progress = test::meanwhile([&] {
    UniqueFd(::open(("/dev/shm/" + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  });
  CHECK_FAILS(stage(path, options), ErrorCode::invalid_argument, "is there already");
  CHECK(fs::file_size("/dev/shm/" + name) == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "refuses a file that was written to, or replaced in place") {
  StageOptions options;
  options.progress = test::meanwhile([&] { fs::resize_file(path, 40000); });
  CHECK_FAILS(stage(path, options), ErrorCode::io,
              "written to while it was copied: it had 37646 bytes and has now 40000");
  fs::resize_file(path, 37646);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  options.progress = test::meanwhile([&] {
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::pwrite(file.get(), "P", 1, 0) == 1);
  });
  CHECK_FAILS(stage(path, options), ErrorCode::io, "written to while it was copied");
}

TEST_CASE_FIXTURE(CopyFixture, "a file that is replaced by rename is copied as it was") {
  const std::string before = read_file(path);
  StageOptions options;
  options.progress = test::meanwhile(
      [&] { fs::rename(folder.write("new.pt", read_file(data / "views.pt")), path); });
  CHECK(content_of(stage(path, options).value().descriptor()) == before);
}

TEST_CASE_FIXTURE(CopyFixture, "copies nothing that is no whole checkpoint") {
  const Progress never = test::meanwhile([] { FAIL("something was copied"); });
  StageOptions options;
  options.progress = never;
  const test::TemporaryFolder without;
  CHECK_FAILS(stage(without.path(), options), ErrorCode::not_a_checkpoint,
              "is a folder in which there is no checkpoint");
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_FAILS(stage(pipe, options), ErrorCode::not_a_checkpoint, "is a FIFO");
  CHECK_FAILS(stage(folder.path() / "missing", options), ErrorCode::io, "No such file");
  fs::resize_file(path, 30000);
  CHECK_FALSE(stage(path, options).has_value());
}

TEST_CASE_FIXTURE(CopyFixture, "refuses what does not fit, with figures") {
  StageOptions options;
  options.budget_bytes = 37645;
  CHECK_FAILS(stage(path, options), ErrorCode::io,
              "a copy takes 37646 bytes of memory, and there are 37645 (the budget)");
  options.budget_bytes = 37646;
  CHECK(stage(path, options).has_value());
}

TEST_CASE_FIXTURE(CopyFixture, "where memory without a name is refused, one with a name serves") {
  with_refusals({{SYS_memfd_create, ENOSYS}}, [&] {
    CHECK_FAILS(stage(path), ErrorCode::io, "a copy with a name, in /dev/shm, does without");
    CHECK(read_file(stage(path, named()).value().path()) == read_file(path));
  });
}

TEST_CASE("memory is opened again for reading without /proc") {
  const UniqueFd memory = os::make_memfd(page).value();
  REQUIRE(::pwrite(memory.get(), "abc", 3, 0) == 3);
  with_refusals({{SYS_openat, ENOENT}}, [&] {
    const Result<UniqueFd> reading = os::reopen_for_reading(memory.get());
    REQUIRE_OK(reading);
    std::array<char, 4> bytes{};
    CHECK(::pread(reading->get(), bytes.data(), 3, 0) == 3);
    CHECK(std::string(bytes.data()) == "abc");
    CHECK((::fcntl(reading->get(), F_GETFD) & FD_CLOEXEC) != 0);
  });
}

TEST_CASE_FIXTURE(CopyFixture, "stages without /proc, in memory and by name") {
  const std::size_t tensors = count_tensors(path);
  const std::string whole = read_file(path);
  test::without_proc([&] {
    Result<StagedFile> staged = stage(path);
    if (!staged) return 1;
    if (!opens(staged->descriptor(), tensors)) return 2;
    if (!staged->report().sealed) return 3;
    staged = stage(path, named());
    if (!staged) return 4;
    if (read_file(staged->path()) != whole) return 5;
    return remove_staged(name) ? 0 : 6;
  });
}

TEST_CASE_FIXTURE(CopyFixture, "is cancelled, and leaves nothing in /dev/shm") {
  StageOptions options = named();
  options.progress = test::stop;
  CHECK_FAILS(stage(path, options), ErrorCode::cancelled,
              "was cancelled after 37646 of 37646 bytes");
  CHECK(shared_names(name).empty());
}

TEST_CASE_FIXTURE(CopyFixture, "leaves nothing in /dev/shm if it fails or is killed") {
  StageOptions options = named();
  options.progress = test::meanwhile([&] { fs::resize_file(path, 100); });
  CHECK_FALSE(stage(path, options).has_value());
  CHECK(shared_names(name).empty());
  folder.write("model.pt", read_file(data / "aligned_4096.pt"));
  options.progress = test::meanwhile([] { ::raise(SIGKILL); });
  const int status = status_of_child([&] { return stage(path, options) ? 0 : 1; });
  CHECK(WIFSIGNALED(status));
  CHECK(shared_names(name).empty());
}

TEST_CASE_FIXTURE(CopyFixture, "a copy that cannot be opened by its name loses it again") {
  const int limit = 1 + UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get();
  CHECK(status_of_child([&] {
          // Descriptors run out at the last of them, whichever that is.
          for (int more = 0; more < 16; ++more) {
            const rlimit most{static_cast<rlim_t>(limit + more), static_cast<rlim_t>(limit + 16)};
            ::setrlimit(RLIMIT_NOFILE, &most);
            if (stage(path, named())) return more > 0 ? 0 : 1;
            if (!shared_names(name).empty()) return 2;
          }
          return 3;
        }) == 0);
}

// --- by descriptor -----------------------------------------------------------------------------

TEST_CASE_FIXTURE(CopyFixture, "a child opens what it inherited, and by the maker's path") {
  const StagedFile staged = stage(path).value();
  const std::size_t tensors = count_tensors(path);
  CHECK(status_of_child([&] { return opens(staged.descriptor(), tensors) ? 0 : 1; }) == 0);
  CHECK(status_of_child([&] { return Checkpoint::open(staged.path()) ? 0 : 1; }) == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "a process opens what was sent over a socket") {
  const StagedFile staged = stage(path).value();
  const std::size_t tensors = count_tensors(path);
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  REQUIRE(test::send_descriptor(ours.get(), staged.descriptor()));
  const int status = status_of_child([&] {
    ::close(staged.descriptor());
    const int received = test::receive_descriptor(theirs.get());
    if (received < 0) return 2;
    return opens(received, tensors) ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "opens any file by a descriptor, which stays the caller's") {
  std::optional<Checkpoint> checkpoint;
  {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(::lseek(file.get(), 7, SEEK_SET) == 7);
    checkpoint = Checkpoint::open_descriptor(file.get()).value();
    CHECK(::lseek(file.get(), 0, SEEK_CUR) == 7);
  }
  CHECK(verify_crc(*checkpoint).faults.empty());
  CHECK_FALSE(lives_in_memory(*checkpoint));
}

TEST_CASE_FIXTURE(CopyFixture, "refuses descriptors of what is no readable file, by number") {
  const auto refused = [](int descriptor, ErrorCode code, const std::string& why) {
    const Result<Checkpoint> opened = Checkpoint::open_descriptor(descriptor);
    CHECK_FAILS(opened, code, why);
    CHECK(opened.error().file == "descriptor " + std::to_string(descriptor));
  };
  refused(-1, ErrorCode::io, "cannot use the descriptor: Bad file descriptor");
  const UniqueFd writing(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  refused(writing.get(), ErrorCode::io, "cannot read from the descriptor");
  const UniqueFd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  refused(place.get(), ErrorCode::io, "cannot read from the descriptor");
  const UniqueFd directory(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  refused(directory.get(), ErrorCode::not_a_checkpoint, "is a directory");
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const UniqueFd out(ends[0]), in(ends[1]);
  refused(out.get(), ErrorCode::not_a_checkpoint, "is a FIFO");
  const UniqueFd other(::open((data / "strangers" / "documents.zip").c_str(), O_RDONLY));
  refused(other.get(), ErrorCode::not_a_checkpoint, "");
}
