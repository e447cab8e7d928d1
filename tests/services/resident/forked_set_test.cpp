// A child of a process that has a set. Not for sanitizers, whose heap does not outlive a fork of
// several threads.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/services/resident/experts_file.hpp"

using namespace weightmap;
using namespace weightmap::test;

TEST_CASE_FIXTURE(Experts, "A forked child cannot acquire, and has its parent's leases") {
  const ResidentSet set = cold_set({.budget_bytes = 2 * slot_bytes});
  std::vector<Lease> leases = leases_of(set, {3});
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_same = text_of(leases[0].part(0)) == filled('d', 3, down_bytes);
    const auto refused = set.acquire(std::vector<std::size_t>{3});
    const bool is_refused = !refused && refused.error().code == ErrorCode::unsupported;
    leases.clear();
    ::_exit(is_same && is_refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(set.stats().leased_units == 1);
}
