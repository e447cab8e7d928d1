#include "tests/faults/failing_calls.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace weightmap::test {
namespace {

constexpr std::uint64_t never = ~std::uint64_t{0};

// Set while no other thread of a test runs; the calls count from any.
std::atomic<Call> failing_call = Call::allocate;
std::atomic<std::uint64_t> first_failing = never;
std::atomic<bool> fails_for_good = false;
std::atomic<std::uint64_t> calls = 0;

std::atomic<std::int64_t> allocations = 0;
std::atomic<std::int64_t> mapped_bytes = 0;

// Where libraries with assertions keep the addresses of closed checkpoints (mmap/closed_range.cpp),
// which are given back one after the other and are nobody's leak.
std::array<std::atomic<void*>, 64> closed_ranges{};

// Replaces an element that is `from`; false if none is.
bool exchange_closed(void* from, void* to) noexcept {
  for (std::atomic<void*>& range : closed_ranges)
    if (void* expected = from; range.compare_exchange_strong(expected, to)) return true;
  return false;
}

// Whether this call is to fail.
bool fails(Call call, int error) noexcept {
  const std::uint64_t first = first_failing;
  if (first == never || call != failing_call) return false;
  const std::uint64_t number = ++calls;
  if (number != first && !(fails_for_good && number > first)) return false;
  errno = error;
  return true;
}

void* counted(void* allocated) noexcept {
  if (allocated != nullptr) ++allocations;
  return allocated;
}

std::int64_t whole_pages(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return static_cast<std::int64_t>((bytes + page - 1) / page * page);
}

std::int64_t count_descriptors() noexcept {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  std::int64_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

std::string_view to_string(Call call) noexcept {
  constexpr std::array<std::string_view, all_calls.size()> names{
      "allocate", "open", "fstat", "mmap", "pread", "munmap", "madvise"};
  return names[static_cast<std::size_t>(call)];
}

FailingCall::FailingCall(Call call, std::uint64_t nth, bool for_good) noexcept {
  calls = 0;
  failing_call = call;
  fails_for_good = for_good;
  first_failing = nth;
}

FailingCall::~FailingCall() { first_failing = never; }

bool FailingCall::has_failed() const noexcept { return calls >= first_failing; }

Held held() {
  Held now{allocations, mapped_bytes, 0};
  now.descriptors = count_descriptors();
  return now;
}

}  // namespace weightmap::test

using weightmap::test::Call;
using weightmap::test::counted;
using weightmap::test::fails;

// The library's calls find these before those of libc, because an executable's symbols come first.
// What libc calls itself (opendir) does not.
extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if (fails(Call::open, EMFILE)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int openat(int folder, const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if (fails(Call::open, EMFILE)) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

int fstat(int descriptor, struct stat* status) noexcept {
  if (fails(Call::fstat, EIO)) return -1;
  return ::fstatat(descriptor, "", status, AT_EMPTY_PATH);
}

void* mmap(void* address, std::size_t length, int protection, int flags, int descriptor,
           off_t offset) noexcept {
  if (fails(Call::mmap, ENOMEM)) return MAP_FAILED;
  void* const at = reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
  const bool is_closed = protection == PROT_NONE && (flags & MAP_FIXED_NOREPLACE) != 0;
  if (at != MAP_FAILED && (flags & MAP_FIXED) == 0 &&
      !(is_closed && weightmap::test::exchange_closed(nullptr, at)))
    weightmap::test::mapped_bytes += weightmap::test::whole_pages(length);
  return at;
}

int munmap(void* address, std::size_t length) noexcept {
  const int result = static_cast<int>(::syscall(SYS_munmap, address, length));
  if (result == 0 && !weightmap::test::exchange_closed(address, nullptr))
    weightmap::test::mapped_bytes -= weightmap::test::whole_pages(length);
  return fails(Call::munmap, ENOMEM) ? -1 : result;
}

ssize_t pread(int descriptor, void* out, std::size_t length, off_t offset) {
  if (fails(Call::pread, EIO)) return -1;
  return ::syscall(SYS_pread64, descriptor, out, length, offset);
}

int madvise(void* address, std::size_t length, int advice) noexcept {
  if (fails(Call::madvise, EINVAL)) return -1;
  return static_cast<int>(::syscall(SYS_madvise, address, length, advice));
}

}  // extern "C"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIGHTMAP_ALLOCATOR_IS_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WEIGHTMAP_ALLOCATOR_IS_SANITIZED
#endif

#ifdef WEIGHTMAP_ALLOCATOR_IS_SANITIZED

void* operator new(std::size_t size) {
  void* const made = fails(Call::allocate, ENOMEM) ? nullptr : counted(std::malloc(size));
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails(Call::allocate, ENOMEM) ? nullptr : counted(std::malloc(size));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto wanted = static_cast<std::size_t>(alignment);
  void* const made =
      fails(Call::allocate, ENOMEM)
          ? nullptr
          : counted(std::aligned_alloc(wanted, (size + wanted - 1) / wanted * wanted));
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

void operator delete(void* made) noexcept {
  if (made != nullptr) --weightmap::test::allocations;
  std::free(made);
}
void operator delete(void* made, std::size_t) noexcept { operator delete(made); }
void operator delete(void* made, std::align_val_t) noexcept { operator delete(made); }
void operator delete(void* made, std::size_t, std::align_val_t) noexcept { operator delete(made); }

#else

extern "C" {

// The allocator of glibc, by the names that it keeps for those who put something in front of it.
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* made);

void* malloc(std::size_t size) noexcept {
  return fails(Call::allocate, ENOMEM) ? nullptr : counted(__libc_malloc(size));
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  return fails(Call::allocate, ENOMEM) ? nullptr : counted(__libc_calloc(count, size));
}

void* realloc(void* old, std::size_t size) noexcept {
  if (fails(Call::allocate, ENOMEM)) return nullptr;
  void* const made = __libc_realloc(old, size);
  return old == nullptr ? counted(made) : made;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return fails(Call::allocate, ENOMEM) ? nullptr : counted(__libc_memalign(alignment, size));
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return aligned_alloc(alignment, size);
}

int posix_memalign(void** made, std::size_t alignment, std::size_t size) noexcept {
  *made = aligned_alloc(alignment, size);
  return *made != nullptr ? 0 : ENOMEM;
}

void free(void* made) noexcept {
  if (made != nullptr) --weightmap::test::allocations;
  __libc_free(made);
}

}  // extern "C"

#endif
