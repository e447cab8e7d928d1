// System calls that fail, as they do on other machines or in containers.
#pragma once

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <future>
#include <initializer_list>

namespace weightmap::test {

// Instead of an errno: whoever makes the call is killed, so that it cannot be overlooked.
inline constexpr unsigned fatal = 0xFFFFFFFF;

// A system call that fails with an errno, if a bit of `flags` is set in one of its arguments (the
// third, unless said otherwise) or `flags` is 0.
struct Refusal {
  unsigned number;
  unsigned error_number;
  unsigned flags = 0;
  unsigned argument = 2;
};

// Says so where the system has no seccomp, as an emulator of its calls.
inline bool can_refuse() {
  const bool can = ::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
  if (!can) MESSAGE("SKIPPED: the system refuses no calls (seccomp)");
  return can;
}

inline void refuse(const Refusal& refusal) {
  const __u8 has_flags = refusal.flags == 0 ? 0 : 1;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
               static_cast<__u32>(offsetof(seccomp_data, args) + refusal.argument * sizeof(__u64))),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, refusal.flags, 0, has_flags),
      BPF_STMT(BPF_RET | BPF_K, refusal.error_number == fatal
                                    ? SECCOMP_RET_KILL_PROCESS
                                    : SECCOMP_RET_ERRNO | refusal.error_number),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{6, code};
  REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Runs it in a thread for which, and for all that it starts, the system refuses these calls.
template <class Function>
void with_refusals(std::initializer_list<Refusal> refusals, const Function& function) {
  if (!can_refuse()) return;
  std::async(std::launch::async, [&] {
    for (const Refusal& refusal : refusals) refuse(refusal);
    function();
  }).get();
}

// What these functions of the C library call.
#ifdef SYS_rename
inline constexpr unsigned call_of_rename = SYS_rename;
inline constexpr unsigned call_of_readlink = SYS_readlink;
#else
inline constexpr unsigned call_of_rename = SYS_renameat;
inline constexpr unsigned call_of_readlink = SYS_readlinkat;
#endif

inline constexpr Refusal no_shared_mappings{SYS_mmap, ENODEV, MAP_SHARED, 3};

}  // namespace weightmap::test
