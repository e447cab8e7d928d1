// A fetch of a set that is killed, or has no room any more, at each call that changes a file: what
// is left opens as the old set or as the new one, or not at all, and the next fetch ends the work.
#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <filesystem>
#include <string>

#include "tests/fetch/scripted_source.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/fetch.hpp"

using namespace weightmap;
using test::read_file;
using test::Store;
namespace fs = std::filesystem;

namespace {

enum class Ending : std::uint8_t { killed, no_room };

std::atomic<int> calls_left = -1;  // before the one that ends it; negative: none does
std::atomic<Ending> ending = Ending::killed;

// Of a process that is to end here; true if the call is to fail.
bool ends_here() noexcept {
  if (calls_left < 0 || calls_left-- != 0) return false;
  if (ending == Ending::killed) ::kill(::getpid(), SIGKILL);
  errno = ENOSPC;
  return true;
}

template <class... Arguments>
long call(long number, Arguments... arguments) noexcept {
  return ends_here() ? -1 : ::syscall(number, arguments...);
}

}  // namespace

// In place of the C library's.
extern "C" {
int renameat(int from, const char* old_name, int to, const char* name) noexcept {
  return static_cast<int>(call(SYS_renameat2, from, old_name, to, name, 0));
}
int renameat2(int from, const char* old_name, int to, const char* name, unsigned flags) noexcept {
  return static_cast<int>(call(SYS_renameat2, from, old_name, to, name, flags));
}
int unlinkat(int folder, const char* name, int flags) noexcept {
  return static_cast<int>(call(SYS_unlinkat, folder, name, flags));
}
int remove(const char* name) noexcept {
  return static_cast<int>(call(SYS_unlinkat, AT_FDCWD, name, 0));
}
int fsync(int descriptor) { return static_cast<int>(call(SYS_fsync, descriptor)); }
int ftruncate(int descriptor, off_t bytes) noexcept {
  return static_cast<int>(call(SYS_ftruncate, descriptor, bytes));
}
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  return static_cast<int>(call(SYS_fallocate, descriptor, mode, offset, bytes));
}
ssize_t pwrite(int descriptor, const void* content, size_t bytes, off_t offset) {
  return call(SYS_pwrite64, descriptor, content, bytes, offset);
}
int fsetxattr(int descriptor, const char* name, const void* text, size_t bytes,
              int flags) noexcept {
  return static_cast<int>(call(SYS_fsetxattr, descriptor, name, text, bytes, flags));
}
int openat(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0) return static_cast<int>(call(SYS_openat, folder, name, flags, mode));
  return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
}
}

namespace {

constexpr int most_calls = 400;  // more than any fetch of this set makes

std::string shard(const std::string& name, char content) {
  return test::safetensors({{name, std::string(65536, content)}});
}

struct Update {
  test::TemporaryFolder folder;
  const std::string index = test::index_of(
      {{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}});
  Store older = version("\"1\"", 'x');
  Store newer = version("\"2\"", 'y');

  Store version(const std::string& tag, char content) const {
    Store store;
    store.tag = tag;
    store.files = {{"m/model.safetensors.index.json", index},
                   {"m/model-00001-of-00002.safetensors", shard("a", content)},
                   {"m/model-00002-of-00002.safetensors", shard("b", content)}};
    return store;
  }
  bool fetch(Store& store) const {
    return fetch_into(test::source_of(store, "m/model.safetensors.index.json"), folder.path())
        .has_value();
  }
  bool has_all_of(const Store& store) const {
    for (const auto& [name, bytes] : store.files)
      if (name.find("index") == name.npos && read_file(folder.path() / name.substr(2)) != bytes)
        return false;
    return true;
  }
  // In a process of its own, which ends at this call. Returns what waitpid() says.
  int end_at(int at, Ending how) {
    const pid_t child = ::fork();
    if (child == 0) {
      ending = how;
      calls_left = at;
      const bool done = fetch(newer);
      ::_exit(calls_left >= 0 ? 2 : done ? 0 : 1);  // 2: the call was not reached
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR);
    return status;
  }
};

void ends_old_or_new(Ending how) {
  int refused = 0;
  for (int at = 0; at < most_calls; ++at) {
    CAPTURE(at);
    Update update;
    REQUIRE(update.fetch(update.older));
    const int status = update.end_at(at, how);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
      CHECK(at > 20);
      CHECK(update.has_all_of(update.newer));
      CHECK(refused > 0);  // the mark was seen
      return;
    }
    if (Checkpoint::open(update.folder.path()).has_value())
      CHECK(update.has_all_of(update.older) != update.has_all_of(update.newer));
    else
      ++refused;
    REQUIRE(update.fetch(update.newer));
    REQUIRE(Checkpoint::open(update.folder.path()).has_value());
    CHECK(update.has_all_of(update.newer));
    for (const fs::directory_entry& entry : fs::directory_iterator(update.folder.path()))
      CHECK(entry.path().extension() != ".part");
  }
  FAIL("the fetch makes more calls than this test ends it at");
}

}  // namespace

TEST_CASE("a set is the old one or the new one, wherever its fetch is killed") {
  ends_old_or_new(Ending::killed);
}

TEST_CASE("a set is the old one or the new one, wherever its fetch has no room") {
  ends_old_or_new(Ending::no_room);
}
