// Files that appear under their name only once they are complete.
#include "weightmap/new_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "runtime/system/file/directory.hpp"
#include "runtime/system/unique_fd.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/services/write/watched_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"

using namespace weightmap;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

constexpr test::Refusal no_unnamed_files{SYS_openat, EOPNOTSUPP, O_TMPFILE & ~O_DIRECTORY};

struct Folder {
  test::TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";

  unsigned mode() const { return static_cast<unsigned>(fs::status(path).permissions()); }
};

// Writes it in a process that is killed before, or in the middle of, giving it its name.
std::string write_and_die(const fs::path& path) {
  return in_child([&] {
    Result<NewFile> file = NewFile::create(path);
    if (!file || !file->write(bytes_of("half"))) return 1;
    return ::raise(SIGKILL);
  });
}

// Both ways to make one: without a name, and with a temporary one.
template <class Function>
void in_both_ways(const Function& function) {
  function();
  with_refusals({no_unnamed_files}, function);
}

}  // namespace

TEST_CASE_FIXTURE(Folder, "a new file has its name once it is committed, and no other before") {
  in_both_ways([&] {
    NewFile file = NewFile::create(path).value();
    REQUIRE_OK(file.reserve(10));
    REQUIRE_OK(file.write_at(5, bytes_of("56789")));
    REQUIRE_OK(file.write(bytes_of("012")));
    REQUIRE_OK(file.write(bytes_of("34")));
    CHECK(folder.names().count("model.pt") == 0);
    REQUIRE_OK(file.commit());
    CHECK(read_file(path) == "0123456789");
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
    fs::remove(path);
  });
}

TEST_CASE_FIXTURE(Folder, "a file that is not committed leaves what was there") {
  folder.write("model.pt", std::string_view("old"));
  in_both_ways([&] {
    {
      NewFile file = NewFile::create(path).value();
      REQUIRE_OK(file.write(bytes_of("new")));
    }
    CHECK(read_file(path) == "old");
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
  });
}

TEST_CASE_FIXTURE(Folder, "what a killed process left is removed by the next new file") {
  CHECK(write_and_die(path) == "signal 9");
  CHECK(folder.names().empty());  // it had no name yet
  with_refusals({no_unnamed_files}, [&] { CHECK(write_and_die(path) == "signal 9"); });
  REQUIRE(folder.names().size() == 1);
  CHECK(folder.names().begin()->starts_with(".model.pt.weightmap-"));
  folder.write(".model.pt.weightmap-mine", std::string_view("is not one of ours"));
  folder.write(".other.pt.weightmap-0123456789abcdef.tmp", std::string_view("of another name"));
  REQUIRE_OK(NewFile::create(path)->commit());
  CHECK(folder.names() == std::set<std::string>{".model.pt.weightmap-mine",
                                                ".other.pt.weightmap-0123456789abcdef.tmp",
                                                "model.pt"});
}

TEST_CASE_FIXTURE(Folder, "a file that is being written is not removed by another of that name") {
  in_both_ways([&] {
    NewFile first = NewFile::create(path).value();
    REQUIRE_OK(first.write(bytes_of("first")));
    NewFile second = NewFile::create(path).value();
    REQUIRE_OK(second.write(bytes_of("second")));
    REQUIRE_OK(first.commit());
    CHECK(read_file(path) == "first");
    REQUIRE_OK(second.commit());
    CHECK(read_file(path) == "second");
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
  });
}

TEST_CASE_FIXTURE(Folder, "a name that is taken can be refused") {
  const auto refuses_second = [&] {
    REQUIRE_OK(NewFile::create(path)->commit(NewFile::Existing::refuse));
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
    CHECK_FAILS(NewFile::create(path)->commit(NewFile::Existing::refuse),
                ErrorCode::invalid_argument, "is there already");
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
    fs::remove(path);
  };
  in_both_ways(refuses_second);
  with_refusals({no_unnamed_files, {SYS_renameat2, EINVAL}}, refuses_second);
}

TEST_CASE_FIXTURE(Folder, "permissions are those of the file that is replaced, else the umask's") {
  const mode_t before = ::umask(027);
  in_both_ways([&] {
    REQUIRE_OK(NewFile::create(path)->commit());
    CHECK(mode() == 0640);
    fs::permissions(path, fs::perms(0604));
    REQUIRE_OK(NewFile::create(path)->commit());
    CHECK(mode() == 0604);
    fs::remove(path);
    REQUIRE_OK(NewFile::create(path, {.mode = 0600})->commit());
    CHECK(mode() == 0600);
    fs::remove(path);
  });
  ::umask(before);
}

TEST_CASE_FIXTURE(Folder, "only a regular file that may be replaced is replaced") {
  fs::create_directory(path);
  CHECK_FAILS(NewFile::create(path), ErrorCode::invalid_argument, "is not a regular file");
  fs::remove(path);
  folder.write("model.pt", std::string_view("kept"));
  fs::create_hard_link(path, folder.path() / "other.pt");
  NewFileOptions options;
  options.kept = generation_at(path).value();
  CHECK_FAILS_IN(NewFile::create(folder.path() / "other.pt", options), ErrorCode::invalid_argument,
                 "would replace the checkpoint", folder.path() / "other.pt");
  CHECK_FAILS(NewFile::create("/nowhere/model.pt"), ErrorCode::io, "No such file");
  CHECK_FAILS(NewFile::create(""), ErrorCode::invalid_argument, "is not the name of a file");
}

TEST_CASE_FIXTURE(Folder, "a refusal of the system leaves the old file and no other") {
  folder.write("model.pt", std::string_view("old"));
  const auto refuses = [&](std::initializer_list<test::Refusal> refusals, const char* what) {
    with_refusals(refusals, [&] {
      NewFile file = NewFile::create(path).value();
      REQUIRE_OK(file.write(bytes_of("new")));
      Result<void> reserved = file.reserve(4096);
      CHECK_FAILS_IN(reserved ? file.commit() : reserved, ErrorCode::io, what, path);
    });
    CHECK(read_file(path) == "old");
    CHECK(folder.names() == std::set<std::string>{"model.pt"});
  };
  refuses({{SYS_fallocate, ENOSPC}}, "cannot get 4096 bytes of disk space: No space");
  refuses({{SYS_fsync, EIO}}, "cannot write the file to the disk");
  refuses({{SYS_linkat, EMLINK}}, "cannot give the file a name");
  refuses({{SYS_renameat, EACCES}}, "cannot rename the new file");
  refuses({no_unnamed_files, {SYS_renameat, EACCES}}, "cannot rename the new file");
}

TEST_CASE_FIXTURE(Folder, "what a restart may lose does not wait for the disk") {
  with_refusals({{SYS_fsync, EIO}}, [&] {
    REQUIRE_OK(NewFile::create(path, {.durable = false})->commit());
    CHECK(fs::exists(path));
  });
}

TEST_CASE_FIXTURE(Folder, "a file system that reserves no space is written to all the same") {
  with_refusals({{SYS_fallocate, EOPNOTSUPP}}, [&] {
    NewFile file = NewFile::create(path).value();
    REQUIRE_OK(file.reserve(100));
    REQUIRE_OK(file.commit());
  });
  CHECK(fs::file_size(path) == 100);
}

TEST_CASE_FIXTURE(Folder, "a file is locked from the beginning, with a name or without one") {
  in_both_ways([&] {
    const NewFile file = NewFile::create(path).value();
    const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
    const os::UniqueFd other(::open(self.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(other.get() >= 0);
    CHECK_FALSE(os::lock_open_file(other.get()));
  });
}

TEST_CASE_FIXTURE(Folder, "the end of a file is compared with what was written") {
  NewFile file = NewFile::create(path).value();
  REQUIRE_OK(file.write(bytes_of("0123456789")));
  CHECK(file.check_end(bytes_of("789")).has_value());
  CHECK_FAILS(file.check_end(bytes_of("7890")), ErrorCode::io,
              "holds something else than what was written to it");
  CHECK_FAILS(file.check_end(bytes_of("x0123456789")), ErrorCode::io,
              "ends before what was written to it");
}

TEST_CASE_FIXTURE(Folder, "a write that takes no byte is an error of the disk") {
  const int status = test::watch_calls(
      [&] {
        NewFile file = NewFile::create(path).value();
        errno = 0;
        const Result<void> written = file.write(bytes_of("x"));
        return !written && written.error().os_error == EIO ? 0 : 1;
      },
      [](const test::SystemCall& call) {
        return call.number == SYS_pwrite64 ? test::Answer::succeed(0) : test::Answer::make_it();
      });
  CHECK((status == 0 || status == -1));
}

TEST_CASE_FIXTURE(Folder, "a link of another user in a folder for all is not followed") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a link to another user");
    return;
  }
  const fs::path link = folder.path() / "link";
  fs::create_symlink("model.pt", link);
  REQUIRE(::lchown(link.c_str(), 12345, 12345) == 0);
  CHECK(NewFile::create(link).has_value());
  REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);
  CHECK_FAILS(NewFile::create(link), ErrorCode::io, "cannot follow the symbolic link");
  CHECK(NewFile::create(path).has_value());
}
