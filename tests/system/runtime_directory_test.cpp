#include "runtime/system/process/runtime_directory.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/services/write/watched_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/variable.hpp"

using namespace weightmap;

namespace fs = std::filesystem;

namespace {

// A folder of its own, which the variable names, for the length of a test.
struct Fixture {
  test::TemporaryFolder folder;
  fs::path root = folder.path();
  fs::path shared = shared;
  test::Variable variable{"WEIGHTMAP_RUNTIME_DIR", shared};
};

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "makes the folder for its user alone, and uses it again") {
  const auto made = os::RuntimeDirectory::open().value();
  CHECK(made.path() == shared);
  CHECK(mode_ofshared == 0700);
  CHECK(os::RuntimeDirectory::open());
}

TEST_CASE_FIXTURE(Fixture, "refuses a folder that lets others in, a link, and a relative path") {
  fs::create_directory(shared);
  REQUIRE(chmod(shared.c_str(), 0770) == 0);
  CHECK_FAILS(os::RuntimeDirectory::open(), ErrorCode::io,
              "cannot use \"" + shared.string() + "\", which lets other users in: chmod 700 it");
  fs::rename(shared, root / "elsewhere");
  REQUIRE(chmod((root / "elsewhere").c_str(), 0700) == 0);  // which would do for a folder
  fs::create_directory_symlink(root / "elsewhere", shared);
  CHECK_FAILS(os::RuntimeDirectory::open(), ErrorCode::io, "");
  variable.set("not/absolute");
  CHECK_FAILS(os::RuntimeDirectory::open(), ErrorCode::invalid_argument,
              "environment variable WEIGHTMAP_RUNTIME_DIR must be an absolute path");
}

TEST_CASE_FIXTURE(Fixture, "refuses a folder of another user") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  fs::create_directoryshared;
  REQUIRE(chmod(shared.c_str(), 0700) == 0);
  REQUIRE(chown(shared.c_str(), 65534, 65534) == 0);
  CHECK(os::RuntimeDirectory::open().error().message ==
        "cannot use \"" + shared.string() + "\", which belongs to another user");
}

TEST_CASE_FIXTURE(Fixture, "takes the session's folder, and one in memory where there is none") {
  const test::Variable none("WEIGHTMAP_RUNTIME_DIR");
  const test::Variable session("XDG_RUNTIME_DIR", root);
  CHECK(os::RuntimeDirectory::open()->path() == root / "weightmap");
  session.set("not/absolute");
  CHECK(os::RuntimeDirectory::open().value().path() ==
        "/dev/shm/weightmap-" + std::to_string(geteuid()));
}

TEST_CASE_FIXTURE(Fixture, "makes files that nobody else may read") {
  const auto folder = os::RuntimeDirectory::open();
  const mode_t before = umask(0);
  const auto file = os::open_own_file(*folder, "a", O_RDWR | O_CREAT);
  umask(before);
  REQUIRE(file);
  CHECK(mode_of(shared / "a") == 0600);
  CHECK((fcntl(file->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "refuses a file that others may read, one of two names, a link and a FIFO") {
  const auto folder = os::RuntimeDirectory::open();
  const auto refuses = [&](const std::string& name, const std::string& words) {
    CHECK_FAILS(os::open_own_file(*folder, name, O_RDONLY), ErrorCode::io, words);
  };
  const auto cannot_use = [&](const std::string& name) {
    return "cannot use \"" + (shared / name).string() + "\", which ";
  };
  REQUIRE(os::open_own_file(*folder, "a", O_RDWR | O_CREAT));
  REQUIRE(chmod((shared / "a").c_str(), 0644) == 0);
  refuses("a", cannot_use("a") + "lets other users in");
  REQUIRE(chmod((shared / "a").c_str(), 0600) == 0);
  fs::create_hard_link(shared / "a", root / "other");
  refuses("a", cannot_use("a") + "was removed or has more than one name");
  fs::create_symlink(root / "other", shared / "link");
  refuses("link", "");
  REQUIRE(mkfifo((shared / "fifo").c_str(), 0600) == 0);
  refuses("fifo", cannot_use("fifo") + "is not a regular file");
}

TEST_CASE("names a file by the generation it is about") {
  CHECK(os::key_of({0xfd01, 26, 4096, 1000000000, 15}) == "fd01-1a-1000-3b9aca00-f");
  CHECK(os::key_of({~0ull, ~0ull, ~0ull, -1, -1}).size() == 5 * 16 + 4);
}

// Another user may write to the folder above, as to /dev/shm, and acts before any one of the calls.
TEST_CASE_FIXTURE(Fixture, "takes no folder and no file of another user, who acts at any moment") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can act as two users");
    return;
  }
  constexpr uid_t user = 65532, stranger = 65533;
  const fs::path folder = shared, own = root / "own", planted = root / "planted";
  const std::vector<std::function<void()>> acts{
      [&] { fs::create_directory(folder), ::chmod(folder.c_str(), 0777); },
      [&] { fs::create_directory_symlink(own, folder); },
      [&] { fs::create_directory_symlink(planted, folder); },
      [&] { fs::create_symlink(root / "nothing", folder); },
      [&] { fs::rename(planted, folder); },
      [&] { ::mkfifo(folder.c_str(), 0666); },
      [&] { ::rmdir(folder.c_str()), fs::create_directory(folder), ::chmod(folder.c_str(), 0700); },
  };
  enum Outcome : int { refused, taken, of_another };
  const auto use_folder = [&]() -> int {
    if (::setresuid(user, user, user) != 0) return of_another;
    const auto opened = os::RuntimeDirectory::open();
    if (!opened) return refused;
    const auto file = os::open_own_file(*opened, "lock", O_RDWR | O_CREAT | O_EXCL);
    struct stat of_folder {
    }, of_file{}, of_path{};
    if (!file || ::fstat(opened->descriptor(), &of_folder) != 0 ||
        ::fstat(file->get(), &of_file) != 0 || ::lstat((folder / "lock").c_str(), &of_path) != 0 ||
        of_path.st_ino != of_file.st_ino)
      return of_another;
    const bool is_own = of_folder.st_uid == user && (of_folder.st_mode & 077) == 0 &&
                        of_file.st_uid == user && (of_file.st_mode & 077) == 0;
    return is_own ? taken : of_another;
  };
  int outcomes[2] = {0, 0};
  for (const std::function<void()>& act : acts)
    for (std::size_t moment = 0;; ++moment) {
      fs::remove_all(root);
      fs::create_directory(root);
      REQUIRE(::chmod(root.c_str(), 01777) == 0);
      for (const auto& [path, owner] : {std::pair(own, user), std::pair(planted, stranger)}) {
        fs::create_directory(path);
        fs::permissions(path, fs::perms::owner_all);
        REQUIRE(::chown(path.c_str(), owner, owner) == 0);
      }
      std::size_t calls = 0;
      const int status = test::watch_calls(use_folder, [&](const test::SystemCall&) {
        if (calls++ == moment) {
          REQUIRE(::seteuid(stranger) == 0);
          try {
            act();
          } catch (const fs::filesystem_error&) {  // the folder is there, and is not the stranger's
          }
          REQUIRE(::seteuid(0) == 0);
        }
        return test::Answer::make_it();
      });
      if (status == -1) return;
      CAPTURE(&act - acts.data());
      CAPTURE(moment);
      REQUIRE(WIFEXITED(status));
      REQUIRE(WEXITSTATUS(status) < of_another);
      ++outcomes[WEXITSTATUS(status)];
      if (calls <= moment) break;  // it had ended before
    }
  MESSAGE(outcomes[refused] << " refused, " << outcomes[taken] << " taken");
  CHECK(outcomes[refused] > 0);
  CHECK(outcomes[taken] > 0);
}
