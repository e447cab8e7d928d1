// Putting a file in the place of another: what is checked, and what a killed process leaves.
#include "runtime/system/write/publish_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/services/write/watched_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using test::in_child;
using test::read_file;
namespace fs = std::filesystem;

namespace {

constexpr test::Refusal no_reflinks{SYS_ioctl, EOPNOTSUPP};
constexpr test::Refusal no_unnamed_files{SYS_openat, EOPNOTSUPP, O_TMPFILE & ~O_DIRECTORY};

struct Folder {
  test::TemporaryFolder folder;
  fs::path target = folder.write("model.pt", std::string_view("old"));
  fs::path fresh = folder.write("next.pt", std::string(2000, 'n'));

  Result<os::PublishedFile> publish(const fs::path& from, bool copy) const {
    return os::publish_file(os::File::open(from, false).value(), from, target, {copy});
  }
};

// What a publication by rename says in a child before each of whose calls `meanwhile` is called.
template <class Meanwhile>
std::string publish_meanwhile(const Folder& files, Meanwhile meanwhile) {
  const int status = test::watch_calls(
      [&files] {
        const Result<os::PublishedFile> published = files.publish(files.fresh, false);
        std::ofstream(files.folder.path() / "said")
            << (published ? "is published" : published.error().message);
        return 0;
      },
      [&meanwhile](const test::SystemCall& call) {
        meanwhile(call);
        return test::Answer::make_it();
      });
  return status == -1 ? "" : read_file(files.folder.path() / "said");
}

// Ends the process, as a kill at this moment would.
void die_at(unsigned call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, code};
  REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

}  // namespace

TEST_CASE_FIXTURE(Folder, "what a publication left that was killed is removed by the next one") {
  if (!test::can_refuse()) return;
  for (const auto call : {SYS_sendfile, SYS_fsync, SYS_renameat}) {
    CHECK(in_child([&] {
            test::refuse(no_unnamed_files);
            test::refuse(no_reflinks);
            die_at(static_cast<unsigned>(call));
            return publish(fresh, true) ? 0 : 1;
          }) == "signal 31");
    CHECK(folder.names().size() == 3);
    CHECK(read_file(target) == "old");
  }
  REQUIRE_OK(publish(fresh, true));
  CHECK(folder.names() == std::set<std::string>{"model.pt", "next.pt"});
  CHECK(read_file(target) == read_file(fresh));
}

TEST_CASE_FIXTURE(Folder, "a file of the same number on another file system is not the same") {
  fs::create_directory(folder.path() / "a");
  fs::create_directory(folder.path() / "b");
  const fs::path a = folder.path() / "a/next.pt";
  const fs::path b = folder.path() / "b/next.pt";
  const std::string end = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0) return 77;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    for (const fs::path& path : {a, b}) {
      if (::mount("none", path.parent_path().c_str(), "tmpfs", 0, nullptr) != 0) return 77;
      std::ofstream(path) << "next";
    }
    const os::File file = os::File::open(a, false).value();
    const Generation other = generation_at(b).value();
    if (other.inode != file.generation().inode) return 77;
    const Result<os::PublishedFile> refused =
        os::publish_file(file, b, folder.path() / "b/model.pt", {});
    if (refused) return 1;
    const std::string& said = refused.error().message;
    return said == "the new file was replaced by another while it was looked at; run it again" ? 0
                                                                                               : 2;
  });
  if (end == "exit 77")
    MESSAGE("SKIPPED: two file systems with a file of the same number cannot be made here");
  else
    CHECK(end == "exit 0");
}

TEST_CASE_FIXTURE(Folder, "a target that is no other regular file is refused by what it is") {
  fs::create_directory(folder.path() / "folder");
  fs::create_symlink("model.pt", folder.path() / "link");
  fs::create_hard_link(fresh, folder.path() / "hard");
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  const struct {
    const char* name;
    const char* words;
  } refusals[] = {{"folder", "is a folder: add the name that the file gets in it"},
                  {"link", "is a symbolic link: publish to the file that it leads to"},
                  {"pipe", "is not a regular file"},
                  {"next.pt", "is the same file as the new one"},
                  {"hard", "is the same file as the new one"}};
  for (const auto& refusal : refusals)
    for (const bool copy : {false, true}) {
      CAPTURE(refusal.name);
      CAPTURE(copy);
      target = folder.path() / refusal.name;
      CHECK_FAILS(publish(fresh, copy), ErrorCode::invalid_argument, refusal.words);
    }
}

TEST_CASE_FIXTURE(Folder, "a copy under a new name has the permissions of the new file") {
  fs::permissions(fresh, fs::perms{0604});
  target = folder.path() / "first.pt";
  REQUIRE_OK(publish(fresh, true));
  CHECK(fs::status(target).permissions() == fs::perms{0604});
}

TEST_CASE_FIXTURE(Folder,
                  "what the disk did not take is not published, and keeps its permissions") {
  fs::permissions(target, fs::perms{0640});
  fs::permissions(fresh, fs::perms{0600});
  test::with_refusals({{SYS_fsync, EIO}}, [this] {
    CHECK_FAILS(publish(fresh, false), ErrorCode::io, "cannot write the new file to the disk");
    CHECK(read_file(target) == "old");
    CHECK(fs::status(fresh).permissions() == fs::perms{0600});
  });
}

TEST_CASE_FIXTURE(Folder, "a new file that is replaced while it is written to the disk stays") {
  const std::string said = publish_meanwhile(*this, [this](const test::SystemCall& call) {
    if (call.number == SYS_fsync) fs::rename(folder.write("other", "other"), fresh);
  });
  if (said.empty()) return;
  CHECK(said == "the new file was replaced by another while it was looked at; run it again");
  CHECK(read_file(target) == "old");
}

TEST_CASE_FIXTURE(Folder, "a new file that is written to while it is renamed is told of") {
  const std::string said = publish_meanwhile(*this, [this](const test::SystemCall& call) {
    if (static_cast<unsigned>(call.number) == test::call_of_rename)
      std::ofstream(fresh, std::ios::app) << "more";
  });
  if (said.empty()) return;
  CHECK(said.starts_with("is in place, but: the file "));
}

TEST_CASE_FIXTURE(Folder, "the file is synced before its name, in both folders") {
  fs::create_directory(folder.path() / "there");
  target = folder.path() / "there" / "model.pt";
  std::vector<std::string> synced;
  const std::string said = publish_meanwhile(*this, [&synced](const test::SystemCall& call) {
    if (call.number == SYS_fsync) synced.push_back(fs::read_symlink(call.open_file()));
    if (static_cast<unsigned>(call.number) == test::call_of_rename) synced.emplace_back("renamed");
  });
  if (said.empty()) return;
  CHECK(said == "is published");
  CHECK(synced == std::vector<std::string>{fresh, "renamed", target.parent_path(), folder.path()});
}
