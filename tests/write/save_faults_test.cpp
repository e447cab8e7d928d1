// A save with a fault at each of its system calls in turn: the call fails, takes less than it was
// given, or the process is killed before it. Then the name leads to the old file or to the new one,
// whole, the answer says to which, and the next save leaves no other name in the folder.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/write/watched_calls.hpp"
#include "tests/write/ways_to_save.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::Answer;
using test::Folder;
using test::read_file;
using test::save;
using test::SystemCall;
using test::TemporaryFolder;
using test::Way;

// What a child that saves ends with.
enum Ended : int { saved = 0, refused = 1, in_place_but = 2, not_an_error = 3 };

int ended_with(const Result<WritePlan>& result, const fs::path& path) {
  if (result) return saved;
  const Error& error = result.error();
  if (error.code != ErrorCode::io || error.file != path || error.message.empty())
    return not_an_error;
  return error.message.starts_with("is in place, but: ") ? in_place_but : refused;
}

bool is_call_without_effect(const SystemCall& call) {
  return call.number == SYS_fsync || call.number == SYS_sync_file_range;
}

// The half of what a read or a write was asked for; nothing for other calls.
std::optional<std::int64_t> half_of(const SystemCall& call) {
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
const std::vector<Fault> faults{{"ENOSPC", ENOSPC},
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

// A save whose `nth` call has the fault.
Watched save_with(const Fault& fault, int nth, const Way& way, const fs::path& path) {
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
      if (syncs && fault.error_number != EINTR) failed_sync = call.open_file();
      if (fault.error_number != 0) return Answer::fail(fault.error_number);
      if (const std::optional<std::int64_t> half = half_of(call)) return Answer::succeed(*half);
    }
    if (way.refuses(call)) return Answer::fail(EOPNOTSUPP);
    return is_call_without_effect(call) ? Answer::succeed(0) : Answer::make_it();
  };
  seen.status = test::watch_calls([&] { return ended_with(save(path, way), path); }, decide);
  return seen;
}

std::string described(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

void check_outcome(const Watched& seen, const Fault& fault, const std::optional<std::string>& found,
                   const std::optional<std::string>& old, const std::string& made) {
  const bool is_old = found == old;
  const bool is_new = found == made;
  CHECK((is_old || is_new));
  if (fault.is_deadly && seen.was_reached) {
    CHECK(described(seen.status) == "signal 9");
    return;
  }
  REQUIRE_MESSAGE(WIFEXITED(seen.status), described(seen.status));
  const int ended = WEXITSTATUS(seen.status);
  CHECK(ended != not_an_error);
  CHECK(is_new == (ended == saved || ended == in_place_but));
  CHECK(seen.syncs_after_failure == 0);
  if (seen.faulty_call == SYS_fsync && fault.error_number == EIO) CHECK(ended != saved);
  const bool is_survived = fault.error_number == EINTR || fault.error_number == 0;
  if (is_survived) CHECK(ended == saved);
}

TEST_SUITE("faults of a save") {
  TEST_CASE("at each system call") {
    const TemporaryFolder elsewhere;
    const fs::path plain = elsewhere.path() / "model.pt";
    const NewFileOptions hurried{.durable = false};
    for (const Way& way : test::ways) {
      REQUIRE_OK(save(plain, way, hurried));
      const std::string made = read_file(plain);
      CHECK(test::opened(plain).verify_crc().faults.empty());
      const Folder folder;
      const std::optional<std::string> old =
          way.replaces ? std::optional<std::string>("the old file") : std::nullopt;
      for (const Fault& fault : faults) {
        for (int nth = 0;; ++nth) {
          folder.begin_with(old);
          const Watched seen = save_with(fault, nth, way, folder.path);
          if (seen.status == -1) return;
          INFO(way.name << ", " << fault.name << " at call " << nth << ", which is number "
                        << seen.faulty_call << ": " << described(seen.status));
          check_outcome(seen, fault, folder.content(), old, made);
          REQUIRE_OK(save(folder.path, way, hurried));
          CHECK(folder.names() == std::set<std::string>{"model.pt"});
          CHECK(folder.content() == made);
          if (!seen.was_reached) break;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weightmap
