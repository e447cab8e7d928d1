// Calls of the C library that this executable answers itself, so that the n-th of them can fail.
// They do what they always do, and are counted, while nothing is to fail.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weightmap::test {

// `allocate` is malloc() and its like; under a sanitizer, which has a malloc() of its own, it is
// operator new.
enum class Call : std::uint8_t { allocate, open, fstat, mmap, pread, munmap, madvise };
inline constexpr std::array all_calls{Call::allocate, Call::open,   Call::fstat,  Call::mmap,
                                      Call::pread,    Call::munmap, Call::madvise};
std::string_view to_string(Call call) noexcept;

// While it lives, the `nth` call of this kind in any thread fails, 1 being the first; with
// `for_good` every later one, too. munmap() does what it is asked to before it says that it failed,
// since nobody can do anything about it. One at a time.
class FailingCall {
 public:
  FailingCall(Call call, std::uint64_t nth, bool for_good) noexcept;
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;
  ~FailingCall();
  bool has_failed() const noexcept;
};

// What the process has of each: a difference is a leak.
struct Held {
  std::int64_t allocations = 0;
  std::int64_t mapped_bytes = 0;  // by mmap() of this executable, not by the allocator's own
  std::int64_t descriptors = 0;
  friend bool operator==(const Held&, const Held&) = default;
};
Held held();

}  // namespace weightmap::test
