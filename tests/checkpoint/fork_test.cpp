// Forks at any moment, besides threads that use a checkpoint: the child has none of these threads.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
namespace fs = std::filesystem;

namespace {

const fs::path file = fs::path(WEIGHTMAP_TEST_DATA) / "training.pt";

bool holds_in_child(const std::function<bool()>& function) {
  return test::in_child([&] { return function() ? 0 : 1; }) == "exit 0";
}

bool demands_all(const Checkpoint& checkpoint) {
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (!checkpoint.demand(tensor.view)) return false;
  return true;
}

bool works(const Checkpoint& checkpoint) {
  const std::size_t tensors = checkpoint.tensors().size();
  if (!checkpoint.find("model.0.weight") || !demands_all(checkpoint)) return false;
  if (checkpoint.state() != CheckpointState::current) return false;
  Result<Warmer> warmer = Warmer::start(checkpoint);
  if (!warmer || !warmer->wait()) return false;
  return demand_order(checkpoint).size() == tensors;
}

}  // namespace

TEST_CASE("a thousand forks besides threads that use a checkpoint leave parent and child working") {
  const Checkpoint checkpoint = Checkpoint::open(file).value();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!done) demands_all(checkpoint);
    });
  threads.emplace_back([&] {
    while (!done) static_cast<void>(demand_order(checkpoint));
  });
  threads.emplace_back([&] {
    while (!done) {
      static_cast<void>(checkpoint.state());
      static_cast<void>(checkpoint.find("model.0.weight"));
    }
  });
  for (int round = 0; round < 1000; ++round) {
    REQUIRE(holds_in_child([&] { return works(checkpoint); }));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(works(checkpoint));
}

TEST_CASE("what a thread of the parent waits for holds up no warmer of the child") {
  const Checkpoint checkpoint = Checkpoint::open(file).value();
  Gate& gate = Checkpoint::Access::state(checkpoint).gate;
  const Gate::Mark mark(gate);
  CHECK(gate.is_demanded());
  CHECK(holds_in_child([&] {
    const bool at_first = gate.is_demanded();
    std::optional<Gate::Mark> own(gate);
    const bool with_own = gate.is_demanded();
    own.reset();
    return !at_first && with_own && !gate.is_demanded() && works(checkpoint);
  }));
  CHECK(gate.is_demanded());
}

TEST_CASE("a warmer of the parent says in the child that it is one") {
  const Checkpoint checkpoint = Checkpoint::open(file).value();
  std::optional<Gate::Mark> mark(Checkpoint::Access::state(checkpoint).gate);
  std::optional<Warmer> warmer(Warmer::start(checkpoint).value());
  CHECK(holds_in_child([&] {
    const bool finished = warmer->progress().finished && warmer->wait_for(std::chrono::hours(1));
    warmer->cancel();
    warmer->passed(0);
    const Result<WarmReport> report = warmer->wait();
    const bool refused = !report && report.error().code == ErrorCode::invalid_argument &&
                         report.error().message.starts_with("the warmer was started before");
    warmer.reset();
    warmer = Warmer::start(checkpoint).value();
    return finished && refused && warmer->wait().has_value();
  }));
  mark.reset();
  REQUIRE_OK(warmer->wait());
}
