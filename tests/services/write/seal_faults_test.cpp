// CheckpointFill::seal() with a fault at each system call in turn, those of opening included. Then
// the file opens; it is sealed and all checksums are right, or it can be sealed again.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/services/write/faults.hpp"
#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::bad_checksums;
using test::described;
using test::Fault;
using test::flat_tensor;
using test::opened;
using test::read_file;
using test::Watched;

constexpr std::size_t length = 5000;
constexpr std::array<const char*, 2> names{"0", "1"};

void write_reserved(const fs::path& path) {
  CheckpointWriter writer({.archive_name = "model", .file = {.durable = false}});
  std::vector<Value> tensors;
  for (std::size_t i = 0; i < names.size(); ++i)
    tensors.push_back(flat_tensor(writer, RecordContent::reserved(length), DType::uint8));
  const Value root = writer.values().list(tensors);
  REQUIRE_OK(std::move(writer).write(root, path));
}

void fill_all(const CheckpointFill& fill) {
  std::byte value{1};
  for (const char* const name : names) {
    REQUIRE_OK(fill.write(name, std::vector<std::byte>(length, value)));
    value = std::byte{2};
  }
}

struct Filled {
  test::TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";
  std::string filled;
  std::string sealed;

  Filled() {
    write_reserved(path);
    CheckpointFill fill = CheckpointFill::open(path).value();
    fill_all(fill);
    filled = read_file(path);
    REQUIRE_OK(fill.seal());
    sealed = read_file(path);
    REQUIRE(bad_checksums(path).empty());
  }

  // 0 if it was sealed, 1 if there was an error about the file, 2 if there was a wrong one.
  int seal() const {
    Result<CheckpointFill> fill = CheckpointFill::open(path);
    const Result<void> done =
        fill ? fill->seal() : Result<void>(tl::unexpected<Error>(std::move(fill.error())));
    if (done) return 0;
    return done.error().code == ErrorCode::io && done.error().file == path ? 1 : 2;
  }

  // Of a file that is not sealed.
  void check_can_be_sealed(bool sync_failed) const {
    CheckpointFill again = CheckpointFill::open(path).value();
    if (sync_failed) {
      CHECK_FAILS(again.seal(), ErrorCode::invalid_argument,
                  "2 of 2 reserved storages are not marked as written: data/0, data/1");
      fill_all(again);
    }
    REQUIRE_OK(again.seal());
    CHECK(read_file(path) == sealed);
  }

  void check_outcome(const Watched& seen, const Fault& fault) const {
    const Checkpoint left = opened(path);
    const bool is_sealed = left.info().reserved->is_sealed;
    const bool was_killed = fault.is_deadly && seen.was_reached;
    if (was_killed)
      CHECK(described(seen.status) == "signal 9");
    else
      REQUIRE_MESSAGE(WIFEXITED(seen.status), described(seen.status));
    const int ended = was_killed ? 1 : WEXITSTATUS(seen.status);
    CHECK(ended != 2);
    if (ended == 0) CHECK(read_file(path) == sealed);
    CHECK(seen.syncs_after_failure == 0);
    const bool is_survived = fault.error_number == EINTR || fault.error_number == 0;
    if (is_survived && !was_killed) CHECK(ended == 0);
    const bool sync_failed =
        seen.faulty_call == SYS_fsync && fault.error_number != 0 && !is_survived;
    if (sync_failed) CHECK(ended == 1);
    if (is_sealed)
      CHECK(bad_checksums(path).empty());
    else
      check_can_be_sealed(sync_failed && !fault.is_lasting);
  }
};

TEST_SUITE("faults of sealing") {
  TEST_CASE_FIXTURE(Filled, "at each system call") {
    const auto refuses = [](const test::SystemCall&) { return false; };
    for (const Fault& fault : test::faults) {
      for (int nth = 0;; ++nth) {
        folder.write("model.pt", std::string_view(filled));
        const Watched seen = test::run_with(
            fault, nth, [&] { return seal(); }, refuses);
        if (seen.status == -1) return;
        INFO(fault.name << " at call " << nth << ", which is number " << seen.faulty_call << ": "
                        << described(seen.status));
        check_outcome(seen, fault);
        if (!seen.was_reached) break;
      }
    }
  }
}

}  // namespace
}  // namespace weightmap
