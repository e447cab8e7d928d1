// What is said of a write to a tensor that is only read.
#include "runtime/checkpoint/refused_write.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using test::data;
using test::opened;

namespace {

const OpenOptions read_only{.copy_on_write = CopyOnWrite::off};
const OpenOptions guarded{.protection = Protection::guard, .copy_on_write = CopyOnWrite::off};

// What a child process says on standard error that writes to a byte of what it is lent, and how it
// ends.
std::string outcome_of_write(const Checkpoint& checkpoint, std::uint64_t position) {
  return test::said_and_end_of([&] {
    *static_cast<volatile std::byte*>(&Backing(checkpoint).lend(1).value()[position]) =
        std::byte{1};
    return 0;
  });
}

// As a program without handlers of its own; a sanitizer has one.
struct DefaultAction {
  DefaultAction() { ::signal(SIGSEGV, SIG_DFL); }
};

}  // namespace

TEST_CASE("names the tensor, the file and the byte") {
  const DefaultAction none;
  const std::filesystem::path path = data / "state_dict.pt";
  const Checkpoint checkpoint = opened(path, guarded);
  const NamedTensor tensor = checkpoint.tensors()[1];
  CHECK(
      outcome_of_write(checkpoint, tensor.file_offset + 1) ==
      "weightmap: a write to tensor \"" + std::string(tensor.name) + "\" of " + path.string() +
          ", at byte " + std::to_string(tensor.file_offset + 1) +
          ", which is mapped to be read only: copy_on_write=True lets it be written to\nsignal 11");
}

TEST_CASE("shows what is not ASCII as question marks") {
  const DefaultAction none;
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "mod\u00E8le.pt";
  std::filesystem::copy_file(data / "state_dict.pt", path);
  const Checkpoint checkpoint = opened(path, guarded);
  CHECK(outcome_of_write(checkpoint, 0).find(" of " + folder.path().string() + "/mod??le.pt, at") !=
        std::string::npos);
}

TEST_CASE("says that a byte is of no tensor") {
  const DefaultAction none;
  const std::filesystem::path path = data / "state_dict.pt";
  const Checkpoint checkpoint = opened(path, guarded);
  CHECK(outcome_of_write(checkpoint, 0) ==
        "weightmap: a write to a byte of no tensor of " + path.string() +
            ", at byte 0, which is mapped to be read only: copy_on_write=True lets it be written "
            "to\nsignal 11");
}

TEST_CASE("without the guard says so if it was asked to") {
  const DefaultAction none;
  const std::filesystem::path path = data / "state_dict.pt";
  const Checkpoint checkpoint = opened(path, read_only);
  CHECK(outcome_of_write(checkpoint, 0) == "signal 11");
  Backing(checkpoint).tell_refused_writes();
  Backing(checkpoint).tell_refused_writes();
  CHECK(outcome_of_write(checkpoint, 0) ==
        "weightmap: a write to a byte of no tensor of " + path.string() +
            ", at byte 0, which is mapped to be read only: copy_on_write=True lets it be written "
            "to\nsignal 11");
}

TEST_CASE("to tell of writes leaves SIGBUS as it was") {
  const DefaultAction none;
  CHECK(test::in_child([] {
          ::signal(SIGBUS, SIG_DFL);
          const Checkpoint checkpoint = opened(data / "state_dict.pt", read_only);
          Backing(checkpoint).tell_refused_writes();
          return guard_is_active() ? 1 : 0;
        }) == "exit 0");
}

TEST_CASE("of a checkpoint that was opened writable nothing is to be told") {
  const OpenOptions options{.sharing = Sharing::private_, .writable = true};
  const Checkpoint checkpoint = opened(data / "state_dict.pt", options);
  Backing(checkpoint).tell_refused_writes();
  CHECK(outcome_of_write(checkpoint, 0) == "exit 0");
}
