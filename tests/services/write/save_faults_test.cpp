// A save with a fault at each of its system calls in turn: the call fails, takes less than it was
// given, or the process is killed before it. Then the name leads to the old file or to the new one,
// whole, the answer says to which, and the next save leaves no other name in the folder.
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/write/faults.hpp"
#include "tests/services/write/ways_to_save.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::described;
using test::Fault;
using test::Folder;
using test::read_file;
using test::save;
using test::TemporaryFolder;
using test::Watched;
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
      CHECK(verify_crc(test::opened(plain)).faults.empty());
      const Folder folder;
      const std::optional<std::string> old =
          way.replaces ? std::optional<std::string>("the old file") : std::nullopt;
      for (const Fault& fault : test::faults) {
        for (int nth = 0;; ++nth) {
          folder.begin_with(old);
          const Watched seen = test::run_with(
              fault, nth, [&] { return ended_with(save(folder.path, way), folder.path); },
              [&](const test::SystemCall& call) { return way.refuses(call); });
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
