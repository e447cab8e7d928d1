// To be loaded before the C library (LD_PRELOAD): ends a program at the n-th call by which it
// changes a file, or has no thread from its n-th one on. ENDING_CALLS is the path of a `Plan`,
// which its processes share with the test. Only processes of the program ENDING_PROGRAM count, so
// not what it starts. The headers are to declare the calls alone, and not what a fortified build
// makes of them.
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>

namespace {

enum class Ending : std::int32_t { killed, interrupted, no_room, no_thread };

struct Plan {
  std::atomic<std::int32_t> calls_left;  // before the one that ends it; negative: none does
  std::atomic<Ending> ending;
  char at[120];  // the call that has ended it
};

Plan* plan_here() noexcept {
  const char* const path = ::getenv("ENDING_CALLS");
  const char* const program = ::getenv("ENDING_PROGRAM");
  char self[PATH_MAX] = {};
  if (path == nullptr || program == nullptr ||
      ::readlink("/proc/self/exe", self, sizeof self - 1) < 0 || ::strcmp(self, program) != 0)
    return nullptr;
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  void* const mapped = ::mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::syscall(SYS_close, file);
  return mapped == MAP_FAILED ? nullptr : static_cast<Plan*>(mapped);
}

// At the first call at the latest, and before the program does anything.
[[gnu::constructor]] Plan* plan() noexcept {
  static Plan* const here = plan_here();
  return here;
}

// Whether this call is to fail, or to write a part only.
bool ends_here(const char* call, const char* name) noexcept {
  if (plan() == nullptr || plan()->ending == Ending::no_thread) return false;
  if (plan()->calls_left < 0 || plan()->calls_left-- != 0) return false;
  ::snprintf(plan()->at, sizeof plan()->at, "%s %s", call, name);
  const Ending ending = plan()->ending;
  if (ending == Ending::killed) ::kill(::getpid(), SIGKILL);
  if (ending == Ending::interrupted) ::kill(::getpid(), SIGINT);
  errno = ENOSPC;
  return ending == Ending::no_room;
}

// Whether the system has no thread for this call, and none for any later one.
bool refuses_thread() noexcept {
  if (plan() == nullptr || plan()->ending != Ending::no_thread) return false;
  if (plan()->calls_left < 0 || plan()->calls_left-- != 0) return false;
  plan()->calls_left = 0;
  ::snprintf(plan()->at, sizeof plan()->at, "pthread_create");
  return true;
}

template <class... Arguments>
int call(const char* what, const char* name, long number, Arguments... arguments) noexcept {
  return ends_here(what, name) ? -1 : static_cast<int>(::syscall(number, arguments...));
}

bool is_file(int descriptor) noexcept {
  struct stat file {};
  return ::fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
}

// A disk that becomes full takes what fits, and nothing of the next call.
template <class... Arguments>
ssize_t write_call(const char* what, long number, int descriptor, const void* content, size_t bytes,
                   Arguments... arguments) noexcept {
  if (is_file(descriptor) && ends_here(what, "")) {
    if (bytes < 2) return -1;
    bytes /= 2;
    plan()->calls_left = 0;
  }
  return ::syscall(number, descriptor, content, bytes, arguments...);
}

int open_call(int folder, const char* name, int flags, mode_t mode) noexcept {
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  if (changes) return call("open", name, SYS_openat, folder, name, flags, mode);
  return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
}

// For what the C library has no single call of the system.
template <class Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

FILE* fopen_call(const char* function, const char* name, const char* mode) noexcept {
  if (mode[0] != 'r' && ends_here("fopen", name)) return nullptr;
  return next<FILE*(const char*, const char*)>(function)(name, mode);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
#define WITH_MODE                                                                   \
  std::va_list rest;                                                                \
  va_start(rest, flags);                                                            \
  const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; \
  const mode_t mode = has_mode ? va_arg(rest, mode_t) : 0;                          \
  va_end(rest)

int open(const char* name, int flags, ...) {
  WITH_MODE;
  return open_call(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  WITH_MODE;
  return open_call(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  WITH_MODE;
  return open_call(folder, name, flags, mode);
}
int openat64(int folder, const char* name, int flags, ...) {
  WITH_MODE;
  return open_call(folder, name, flags, mode);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return call("memfd_create", name, SYS_memfd_create, name, flags);
}
ssize_t write(int descriptor, const void* content, size_t bytes) {
  return write_call("write", SYS_write, descriptor, content, bytes);
}
ssize_t pwrite(int descriptor, const void* content, size_t bytes, off_t offset) {
  return write_call("pwrite", SYS_pwrite64, descriptor, content, bytes, offset);
}
ssize_t pwrite64(int descriptor, const void* content, size_t bytes, off64_t offset) {
  return write_call("pwrite", SYS_pwrite64, descriptor, content, bytes, offset);
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
  if (is_file(descriptor) && ends_here("writev", "")) return -1;
  return ::syscall(SYS_writev, descriptor, parts, count);
}
ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) noexcept {
  if (is_file(to) && ends_here("sendfile", "")) return -1;
  return ::syscall(SYS_sendfile, to, from, offset, bytes);
}
ssize_t splice(int from, off64_t* offset, int to, off64_t* to_offset, size_t bytes,
               unsigned flags) {
  if (is_file(to) && ends_here("splice", "")) return -1;
  return ::syscall(SYS_splice, from, offset, to, to_offset, bytes, flags);
}
int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  if (refuses_thread()) return EAGAIN;
  return next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create")(
      made, attributes, function, argument);
}
FILE* fopen(const char* name, const char* mode) { return fopen_call("fopen", name, mode); }
FILE* fopen64(const char* name, const char* mode) { return fopen_call("fopen64", name, mode); }
int ftruncate(int descriptor, off_t bytes) noexcept {
  return call("ftruncate", "", SYS_ftruncate, descriptor, bytes);
}
int ftruncate64(int descriptor, off64_t bytes) noexcept {
  return call("ftruncate", "", SYS_ftruncate, descriptor, bytes);
}
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  return call("fallocate", "", SYS_fallocate, descriptor, mode, offset, bytes);
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes) {
  return call("fallocate", "", SYS_fallocate, descriptor, mode, offset, bytes);
}
int fsync(int descriptor) { return call("fsync", "", SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return call("fdatasync", "", SYS_fdatasync, descriptor); }
int fsetxattr(int descriptor, const char* name, const void* text, size_t bytes,
              int flags) noexcept {
  return call("fsetxattr", name, SYS_fsetxattr, descriptor, name, text, bytes, flags);
}
int fchmod(int descriptor, mode_t mode) noexcept {
  return call("fchmod", "", SYS_fchmod, descriptor, mode);
}
int chmod(const char* name, mode_t mode) noexcept {
  return call("chmod", name, SYS_fchmodat, AT_FDCWD, name, mode);
}
int fchmodat(int folder, const char* name, mode_t mode, int) noexcept {
  return call("chmod", name, SYS_fchmodat, folder, name, mode);
}
int fchown(int descriptor, uid_t user, gid_t group) noexcept {
  return call("fchown", "", SYS_fchown, descriptor, user, group);
}
int rename(const char* from, const char* name) noexcept {
  return call("rename", name, SYS_renameat2, AT_FDCWD, from, AT_FDCWD, name, 0);
}
int renameat(int from, const char* old_name, int to, const char* name) noexcept {
  return call("rename", name, SYS_renameat2, from, old_name, to, name, 0);
}
int renameat2(int from, const char* old_name, int to, const char* name, unsigned flags) noexcept {
  return call("rename", name, SYS_renameat2, from, old_name, to, name, flags);
}
int link(const char* from, const char* name) noexcept {
  return call("link", name, SYS_linkat, AT_FDCWD, from, AT_FDCWD, name, 0);
}
int linkat(int from, const char* old_name, int to, const char* name, int flags) noexcept {
  return call("link", name, SYS_linkat, from, old_name, to, name, flags);
}
int symlink(const char* text, const char* name) noexcept {
  return call("symlink", name, SYS_symlinkat, text, AT_FDCWD, name);
}
int symlinkat(const char* text, int folder, const char* name) noexcept {
  return call("symlink", name, SYS_symlinkat, text, folder, name);
}
int unlink(const char* name) noexcept {
  return call("unlink", name, SYS_unlinkat, AT_FDCWD, name, 0);
}
int unlinkat(int folder, const char* name, int flags) noexcept {
  return call("unlink", name, SYS_unlinkat, folder, name, flags);
}
int rmdir(const char* name) noexcept {
  return call("rmdir", name, SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char* name) noexcept {
  const int done = call("remove", name, SYS_unlinkat, AT_FDCWD, name, 0);
  if (done == 0 || errno != EISDIR) return done;
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR));
}
int mkdir(const char* name, mode_t mode) noexcept {
  return call("mkdir", name, SYS_mkdirat, AT_FDCWD, name, mode);
}
char* mkdtemp(char* name) noexcept {
  if (ends_here("mkdtemp", name)) return nullptr;
  return next<char*(char*)>("mkdtemp")(name);
}
int mkdirat(int folder, const char* name, mode_t mode) noexcept {
  return call("mkdir", name, SYS_mkdirat, folder, name, mode);
}
}
#pragma GCC visibility pop
