// Places that a checkpoint cannot be written to, for want of space or otherwise: one error, and
// what was there stays.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::read_file;

constexpr std::size_t megabyte = 1'000'000;

// Of one tensor of this many bytes. `begins` is called before the first of them.
Result<WritePlan> save(const fs::path& path, std::size_t size, bool reserves = false,
                       const std::function<void()>& begins = {}) {
  CheckpointWriter writer;
  const auto produce = [&](const RecordContent::Take& take) {
    if (begins) begins();
    return take(std::vector<std::byte>(size, std::byte{5}));
  };
  const Value root = test::flat_tensor(
      writer, reserves ? RecordContent::reserved(size) : RecordContent::produced(size, produce),
      DType::uint8);
  return std::move(writer).write(root, path);
}

bool fails_with(const Result<WritePlan>& result, int error_number, std::string_view text) {
  return !result && result.error().code == ErrorCode::io &&
         result.error().os_error == error_number &&
         result.error().message.find(text) != std::string::npos;
}

std::size_t names_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// What a child answers, 0 if all was well; it does not report assertions.
template <class Work>
int answer_of(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE_MESSAGE(WIFEXITED(status), "signal " << WTERMSIG(status));
  return WEXITSTATUS(status);
}

// In a child that has a file system of 1 MiB at `folder`. Says so where nobody may mount one.
template <class Work>
void on_small_disk(const fs::path& folder, const Work& work) {
  constexpr int nothing_mounted = 77;
  const int answer = answer_of([&] {
    const bool is_alone =
        ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const bool is_mounted = is_alone &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            ::mount("none", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
    return is_mounted ? work() : nothing_mounted;
  });
  if (answer == nothing_mounted)
    MESSAGE("SKIPPED: the system lets nobody mount a file system");
  else
    CHECK(answer == 0);
}

struct Folder {
  test::TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";
};

TEST_SUITE("full disks") {
  TEST_CASE_FIXTURE(Folder, "a disk that is too small is an error before the first byte") {
    on_small_disk(folder.path(), [&] {
      if (!save(path, megabyte / 4)) return 1;
      const std::string old = read_file(path);
      bool has_begun = false;
      const Result<WritePlan> refused = save(path, megabyte * 5, false, [&] { has_begun = true; });
      if (!fails_with(refused, ENOSPC, "bytes of disk space: No space left")) return 2;
      if (has_begun) return 3;
      if (read_file(path) != old || names_in(folder.path()) != 1) return 4;
      return save(path, megabyte / 8) ? 0 : 5;
    });
  }

  TEST_CASE_FIXTURE(Folder, "a disk on which both files have no room leaves the old one") {
    on_small_disk(folder.path(), [&] {
      if (!save(path, megabyte * 6 / 10)) return 1;
      const std::string old = read_file(path);
      if (!fails_with(save(path, megabyte * 6 / 10), ENOSPC, "No space left")) return 2;
      return read_file(path) == old && names_in(folder.path()) == 1 ? 0 : 3;
    });
  }

  TEST_CASE_FIXTURE(Folder, "reserved storages for which there is no space when they are filled") {
    on_small_disk(folder.path(), [&] {
      if (!save(path, megabyte * 5, true)) return 1;
      Result<CheckpointFill> fill = CheckpointFill::open(path);
      if (!fill) return 2;
      const std::string name((*fill->checkpoint().tensors().begin()).name);
      const Result<std::span<std::byte>> place = fill->writable_bytes(name);
      if (place || place.error().os_error != ENOSPC) return 3;
      const Result<void> written = fill->write(name, std::vector<std::byte>(megabyte * 5));
      if (written || written.error().os_error != ENOSPC) return 4;
      return fill->storages()->front().is_written ? 5 : 0;
    });
  }

  TEST_CASE_FIXTURE(Folder, "a file system that is read-only") {
    on_small_disk(folder.path(), [&] {
      if (!save(path, 100)) return 1;
      const std::string old = read_file(path);
      if (::mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
        return 2;
      if (!fails_with(save(path, 100), EROFS, "Read-only file system")) return 3;
      return read_file(path) == old ? 0 : 4;
    });
  }

  TEST_CASE_FIXTURE(Folder, "beyond RLIMIT_FSIZE is an error, and no signal") {
    folder.write("model.pt", std::string_view("the old file"));
    CHECK(answer_of([&] {
            const rlimit limit{100'000, 100'000};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            for (const bool reserves : {false, true})
              if (!fails_with(save(path, megabyte, reserves), EFBIG, "RLIMIT_FSIZE is 100000"))
                return 1;
            return save(path.string() + ".small", 1000) ? 0 : 2;
          }) == 0);
    CHECK(read_file(path) == "the old file");
    CHECK(names_in(folder.path()) == 2);
  }

  TEST_CASE_FIXTURE(Folder, "a set of files of which one is too large") {
    CHECK(answer_of([&] {
            const rlimit limit{100'000, 100'000};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            std::vector<SafetensorsTensor> tensors;
            for (const std::int64_t size : {1000, 200'000})
              tensors.push_back(
                  {.name = std::to_string(size),
                   .dtype = DType::uint8,
                   .shape = {size},
                   .content = RecordContent::zeros(static_cast<std::uint64_t>(size))});
            const Result<SafetensorsReport> refused = write_safetensors(
                tensors, {}, folder.path() / "m.safetensors", {.max_file_bytes = 1000});
            const bool is_told = !refused && refused.error().os_error == EFBIG &&
                                 refused.error().file.ends_with("/m-00001-of-00002.safetensors");
            return is_told ? 0 : 1;
          }) == 0);
    CHECK(names_in(folder.path()) == 0);
  }

  TEST_CASE_FIXTURE(Folder, "a folder in which nobody may write") {
    folder.write("model.pt", std::string_view("the old file"));
    ::chmod(folder.path().c_str(), 0555);
    CHECK(answer_of([&] {
            constexpr uid_t nobody = 65534;
            if (::geteuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) return 1;
            return fails_with(save(path, 100), EACCES, "Permission denied") ? 0 : 2;
          }) == 0);
    ::chmod(folder.path().c_str(), 0755);
    CHECK(read_file(path) == "the old file");
    CHECK(names_in(folder.path()) == 1);
  }

  TEST_CASE_FIXTURE(Folder, "a folder that vanishes while the file is written") {
    const fs::path gone = folder.path() / "gone";
    fs::create_directory(gone);
    const Result<WritePlan> refused =
        save(gone / "model.pt", 100, false, [&] { fs::remove_all(gone); });
    CHECK(fails_with(refused, ENOENT, "No such file or directory"));
    CHECK(names_in(folder.path()) == 0);
  }

  TEST_CASE_FIXTURE(Folder, "a target that is a directory or a device") {
    fs::create_directory(path);
    CHECK_FAILS(save(path, 100), ErrorCode::invalid_argument, "is not a regular file");
    CHECK_FAILS(save("/dev/null", 100), ErrorCode::invalid_argument, "is not a regular file");
    CHECK(fs::is_character_file("/dev/null"));
    CHECK(names_in(folder.path()) == 1);
    CHECK(names_in(path) == 0);
  }

  TEST_CASE_FIXTURE(Folder, "a link stays, and what it leads to is replaced, or made") {
    fs::create_directory(folder.path() / "other");
    folder.write("other/old.pt", std::string_view("the old file"));
    fs::create_symlink("other/second", folder.path() / "first");
    for (const char* const name : {"old.pt", "new.pt"}) {
      CAPTURE(std::string(name));
      const fs::path second = folder.path() / "other" / "second";
      fs::remove(second);
      fs::create_symlink(name, second);
      REQUIRE_OK(save(folder.path() / "first", 100));
      CHECK(fs::is_symlink(folder.path() / "first"));
      CHECK(fs::is_symlink(second));
      CHECK(fs::symlink_status(folder.path() / "other" / name).type() == fs::file_type::regular);
      CHECK(read_file(folder.path() / "other" / name) == read_file(folder.path() / "first"));
      CHECK(read_file(second) != "the old file");
    }
    CHECK(names_in(folder.path()) == 2);
    CHECK(names_in(folder.path() / "other") == 3);
  }

  TEST_CASE_FIXTURE(Folder, "a link in a circle, or another user's in a directory for all") {
    fs::create_symlink("model.pt", path);
    CHECK_FAILS(save(path, 100), ErrorCode::io, "Too many levels of symbolic links");
    if (::geteuid() != 0) {
      MESSAGE("SKIPPED: only root can give a link away");
      return;
    }
    const fs::path old = folder.write("old.pt", std::string_view("the old file"));
    fs::remove(path);
    fs::create_symlink("old.pt", path);
    fs::permissions(folder.path(), fs::perms(01777));
    REQUIRE(::lchown(path.c_str(), 65534, 65534) == 0);
    CHECK_FAILS(save(path, 100), ErrorCode::io,
                "cannot follow the symbolic link: Permission denied");
    CHECK(read_file(old) == "the old file");
  }
}

}  // namespace
}  // namespace weightmap
