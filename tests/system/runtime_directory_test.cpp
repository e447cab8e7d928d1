#include "runtime/system/process/runtime_directory.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/services/write/watched_calls.hpp"

using namespace weightmap;

namespace fs = std::filesystem;

namespace {

// A folder of its own, which the variable names, for the length of a test.
struct Fixture {
  Fixture() {
    char name[] = "/tmp/weightmap-test-XXXXXX";
    root = mkdtemp(name);
    setenv("WEIGHTMAP_RUNTIME_DIR", (root / "shared").c_str(), 1);
  }
  ~Fixture() {
    unsetenv("WEIGHTMAP_RUNTIME_DIR");
    fs::remove_all(root);
  }
  fs::path root;
};

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "makes the folder for its user alone, and uses it again") {
  const auto made = os::RuntimeDirectory::open();
  REQUIRE(made);
  CHECK(made->path() == root / "shared");
  CHECK(mode_of(root / "shared") == 0700);
  CHECK(os::RuntimeDirectory::open());
}

TEST_CASE_FIXTURE(Fixture, "refuses a folder that lets others in") {
  fs::create_directory(root / "shared");
  REQUIRE(chmod((root / "shared").c_str(), 0770) == 0);
  const Error error = os::RuntimeDirectory::open().error();
  CHECK(error.code == ErrorCode::io);
  CHECK(error.message == "cannot use \"" + (root / "shared").string() +
                             "\", which lets other users in: chmod 700 it");
}

TEST_CASE_FIXTURE(Fixture, "refuses a folder of another user") {
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  fs::create_directory(root / "shared");
  REQUIRE(chmod((root / "shared").c_str(), 0700) == 0);
  REQUIRE(chown((root / "shared").c_str(), 65534, 65534) == 0);
  CHECK(os::RuntimeDirectory::open().error().message ==
        "cannot use \"" + (root / "shared").string() + "\", which belongs to another user");
}

TEST_CASE_FIXTURE(Fixture, "does not follow a link that somebody put in its place") {
  fs::create_directory(root / "elsewhere");
  fs::create_directory_symlink(root / "elsewhere", root / "shared");
  CHECK(os::RuntimeDirectory::open().error().code == ErrorCode::io);
}

TEST_CASE_FIXTURE(Fixture, "refuses a relative path, which would be another one for each process") {
  setenv("WEIGHTMAP_RUNTIME_DIR", "not/absolute", 1);
  const Error error = os::RuntimeDirectory::open().error();
  CHECK(error.code == ErrorCode::invalid_argument);
  CHECK(error.message == "environment variable WEIGHTMAP_RUNTIME_DIR must be an absolute path");
}

TEST_CASE_FIXTURE(Fixture, "takes the session's folder, and one in memory where there is none") {
  unsetenv("WEIGHTMAP_RUNTIME_DIR");
  const char* const before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before ? before : "";
  setenv("XDG_RUNTIME_DIR", root.c_str(), 1);
  CHECK(os::RuntimeDirectory::open()->path() == root / "weightmap");
  setenv("XDG_RUNTIME_DIR", "not/absolute", 1);
  const auto in_memory = os::RuntimeDirectory::open();
  if (before) {
    setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
  } else {
    unsetenv("XDG_RUNTIME_DIR");
  }
  REQUIRE(in_memory);
  CHECK(in_memory->path() == "/dev/shm/weightmap-" + std::to_string(geteuid()));
}

TEST_CASE_FIXTURE(Fixture, "makes files that nobody else may read") {
  const auto folder = os::RuntimeDirectory::open();
  const mode_t before = umask(0);
  const auto file = os::open_own_file(*folder, "a", O_RDWR | O_CREAT);
  umask(before);
  REQUIRE(file);
  CHECK(mode_of(root / "shared" / "a") == 0600);
  CHECK((fcntl(file->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE_FIXTURE(Fixture, "refuses a file that others may read") {
  const auto folder = os::RuntimeDirectory::open();
  REQUIRE(os::open_own_file(*folder, "a", O_RDWR | O_CREAT));
  REQUIRE(chmod((root / "shared" / "a").c_str(), 0644) == 0);
  CHECK(os::open_own_file(*folder, "a", O_RDONLY).error().message ==
        "cannot use \"" + (root / "shared" / "a").string() + "\", which lets other users in");
}

TEST_CASE_FIXTURE(Fixture, "refuses a file of two names, a link and a FIFO") {
  const auto folder = os::RuntimeDirectory::open();
  REQUIRE(os::open_own_file(*folder, "a", O_RDWR | O_CREAT));
  fs::create_hard_link(root / "shared" / "a", root / "other");
  CHECK(os::open_own_file(*folder, "a", O_RDONLY).error().message ==
        "cannot use \"" + (root / "shared" / "a").string() +
            "\", which was removed or has more than one name");
  fs::create_symlink(root / "other", root / "shared" / "link");
  CHECK(os::open_own_file(*folder, "link", O_RDONLY).error().code == ErrorCode::io);
  REQUIRE(mkfifo((root / "shared" / "fifo").c_str(), 0600) == 0);
  CHECK(os::open_own_file(*folder, "fifo", O_RDONLY).error().message ==
        "cannot use \"" + (root / "shared" / "fifo").string() + "\", which is not a regular file");
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
  const fs::path folder = root / "shared", own = root / "own", planted = root / "planted";
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
