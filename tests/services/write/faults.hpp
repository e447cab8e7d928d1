// Programs with one fault: a system call fails, takes less than it was given, or the process is
// killed before it.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/services/write/watched_calls.hpp"

namespace weightmap::test {

inline bool is_call_without_effect(const SystemCall& call) {
  return call.number == SYS_fsync || call.number == SYS_sync_file_range;
}

// The half of what a read or a write was asked for; nothing for other calls.
inline std::optional<std::int64_t> half_of(const SystemCall& call) {
  const auto half = static_cast<std::size_t>(call.arguments[2] / 2);
  const auto offset = static_cast<off_t>(call.arguments[3]);
  const bool writes = call.number == SYS_pwrite64;
  if ((!writes && call.number != SYS_pread64) || half == 0) return std::nullopt;
  const int file = ::open(call.open_file().c_str(), (writes ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  REQUIRE(file >= 0);
  std::string bytes = writes ? call.bytes_at(1, half) : std::string(half, '\0');
  const ssize_t done = writes ? ::pwrite(file, bytes.data(), half, offset)
                              : ::pread(file, bytes.data(), half, offset);
  ::close(file);
  REQUIRE(done == static_cast<ssize_t>(half));
  if (!writes) {
    iovec here{bytes.data(), half};
    iovec there{reinterpret_cast<void*>(call.arguments[1]), half};
    REQUIRE(::process_vm_writev(call.process, &here, 1, &there, 1, 0) == done);
  }
  return done;
}

struct Fault {
  std::string name;
  int error_number;         // 0: none
  bool is_lasting = false;  // all calls from there on
  bool is_deadly = false;   // SIGKILL before the call
};
inline const std::vector<Fault> faults{{"ENOSPC", ENOSPC},
                                       {"EIO", EIO},
                                       {"EDQUOT", EDQUOT},
                                       {"EINTR", EINTR},
                                       {"EIO ever after", EIO, true},
                                       {"less than asked for", 0},
                                       {"SIGKILL", 0, false, true}};

struct Watched {
  int status = 0;
  bool was_reached = false;     // there are that many calls
  int faulty_call = 0;          // its number
  int syncs_after_failure = 0;  // of a file whose fsync failed before
};

// Runs `body` as watch_calls() does, with the fault at its `nth` call. The disk is not waited for.
// Calls that `refuses` names fail as on a file system that does not know them.
template <class Body, class Refuses>
Watched run_with(const Fault& fault, int nth, const Body& body, const Refuses& refuses) {
  Watched seen;
  int at = 0;
  std::string failed_sync;
  const auto decide = [&](const SystemCall& call) {
    const bool is_faulty = at == nth || (fault.is_lasting && at > nth);
    ++at;
    const bool syncs = call.number == SYS_fsync;
    if (syncs && call.open_file() == failed_sync) ++seen.syncs_after_failure;
    if (is_faulty) {
      if (!seen.was_reached) seen.faulty_call = call.number;
      seen.was_reached = true;
      if (fault.is_deadly) return Answer::kill();
      const bool fails = fault.error_number != 0 && fault.error_number != EINTR;
      if (syncs && fails) failed_sync = call.open_file();
      if (fault.error_number != 0) return Answer::fail(fault.error_number);
      if (const std::optional<std::int64_t> half = half_of(call)) return Answer::succeed(*half);
    }
    if (refuses(call)) return Answer::fail(EOPNOTSUPP);
    return is_call_without_effect(call) ? Answer::succeed(0) : Answer::make_it();
  };
  seen.status = watch_calls(body, decide);
  return seen;
}

inline std::string described(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

}  // namespace weightmap::test
