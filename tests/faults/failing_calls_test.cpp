// Every call that the system may refuse is refused, one after another: the answer is an error, or
// what it would have been without, and nothing is left behind.
#include "tests/faults/failing_calls.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/services/inspect/list_globals.hpp"
#include "runtime/system/unique_fd.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace weightmap::test;

namespace {

// What an operation read, as a number that differs if anything in it does.
using Sum = std::uint64_t;
using Operation = std::function<Result<Sum>(const std::filesystem::path&)>;

// Whatever the operation does beyond its last call of a kind; more would be an endless loop.
constexpr std::uint64_t most_calls = 1'000'000;

class Summing {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add(static_cast<Sum>(byte));
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(Sum number) { sum_ = (sum_ ^ number) * 0x100000001b3; }
  Sum sum() const { return sum_; }

 private:
  Sum sum_ = 0xcbf29ce484222325;
};

Result<Sum> sum_of(const Checkpoint& checkpoint) {
  Summing sum;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    sum.add(tensor.name);
    std::vector<std::byte> elements(tensor.view.nbytes());
    if (const Result<void> gathered = checkpoint.gather(tensor.view, elements); !gathered)
      return tl::unexpected<Error>(gathered.error());
    sum.add(elements);
    if (checkpoint.find(tensor.name)) sum.add(1);
  }
  return sum.sum();
}

Operation opens(const OpenOptions& options = {}) {
  return [options](const std::filesystem::path& path) -> Result<Sum> {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path, options);
    if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
    return sum_of(*checkpoint);
  };
}

Result<Sum> opens_copy_on_write(const std::filesystem::path& path) {
  const OpenOptions options{.sharing = Sharing::private_};
  const Result<Checkpoint> checkpoint = Checkpoint::open(path, options);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<std::span<std::byte>> writable = Backing(*checkpoint).copy_on_write();
  if (!writable) return tl::unexpected<Error>(writable.error());
  return sum_of(*checkpoint);
}

Result<Sum> reads_records(const std::filesystem::path& path) {
  const Result<ArchiveReader> archive = ArchiveReader::open(path);
  if (!archive) return tl::unexpected<Error>(archive.error());
  Summing sum;
  for (const ArchiveReader::RecordInfo& record : archive->records()) {
    const Result<std::vector<std::byte>> content = archive->read(record.name);
    if (!content) return tl::unexpected<Error>(content.error());
    sum.add(record.name);
    sum.add(*content);
  }
  return sum.sum();
}

Result<Sum> lists_globals(const std::filesystem::path& path) {
  const Result<FileGlobals> globals = list_globals(path);
  if (!globals) return tl::unexpected<Error>(globals.error());
  Summing sum;
  for (const PickleGlobals& pickle : globals->pickles) {
    if (pickle.fault) return tl::unexpected<Error>(*pickle.fault);
    for (const NamedGlobal& global : pickle.globals) sum.add(global.name);
  }
  return sum.sum();
}

Result<Sum> walks_the_tree(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  return checkpoint->root().size() + 1;
}

Result<Sum> warms(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  Result<Warmer> warmer = Warmer::start(*checkpoint);
  if (!warmer) return tl::unexpected<Error>(warmer.error());
  const Result<WarmReport> report = warmer->wait();
  if (!report) return tl::unexpected<Error>(report.error());
  return sum_of(*checkpoint);
}

Result<Sum> looks_at_residency(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected<Error>(checkpoint.error());
  const Result<ResidencyReport> report = residency(*checkpoint);
  if (!report) return tl::unexpected<Error>(report.error());
  return report->tensors.size();
}

// Into the folder, of which it is to leave nothing but the whole file.
Operation converts_into(const std::filesystem::path& folder) {
  return [to = folder / "converted.pt"](const std::filesystem::path& path) -> Result<Sum> {
    const Result<ConvertReport> report = convert(path, to);
    if (!report) return tl::unexpected<Error>(report.error());
    return opens()(to);
  };
}

// Owns no memory, which would look like a leak.
struct Outcome {
  bool has_failed = false;  // the call was reached
  bool threw = false;       // bad_alloc
  std::optional<Sum> sum;
  std::optional<ErrorCode> code;
  std::array<char, 400> message{};
};

Outcome with_failing(const Operation& operation, const std::filesystem::path& path, Call call,
                     std::uint64_t nth, bool for_good) {
  Outcome outcome;
  const FailingCall failing(call, nth, for_good);
  try {
    const Result<Sum> result = operation(path);
    if (result) {
      outcome.sum = *result;
    } else {
      outcome.code = result.error().code;
      result.error().message.copy(outcome.message.data(), outcome.message.size() - 1);
    }
  } catch (const std::bad_alloc&) {
    outcome.threw = true;
  }
  outcome.has_failed = failing.has_failed();
  return outcome;
}

void check(const Outcome& outcome, Call call, Sum expected) {
  if (outcome.sum) CHECK(*outcome.sum == expected);
  if (outcome.code) {
    CHECK(*outcome.code == ErrorCode::io);
    CHECK(outcome.message[0] != '\0');
  }
  if (outcome.threw) CHECK(call == Call::allocate);
}

// `afterwards` looks at what is left, and takes it away.
void check_every_call(
    const Operation& operation, const std::filesystem::path& path,
    const std::function<void()>& afterwards = [] {}) {
  CAPTURE(path);
  const Sum expected = operation(path).value();
  afterwards();
  for (const Call call : test::all_calls) {
    CAPTURE(test::to_string(call));
    for (const bool for_good : {false, true}) {
      CAPTURE(for_good);
      std::uint64_t nth = 1;
      for (; nth < most_calls; ++nth) {
        const Held before = test::held();
        const Outcome outcome = with_failing(operation, path, call, nth, for_good);
        const Held after = test::held();
        CAPTURE(nth);
        CAPTURE(outcome.message.data());
        REQUIRE(after.allocations == before.allocations);
        REQUIRE(after.mapped_bytes == before.mapped_bytes);
        REQUIRE(after.descriptors == before.descriptors);
        check(outcome, call, expected);
        if (nth == 1 && call == Call::allocate) CHECK(outcome.threw);
        if (nth == 1 && call == Call::open) CHECK(outcome.code.has_value());
        afterwards();
        if (!outcome.has_failed) break;
      }
      CHECK(nth < most_calls);
    }
  }
}

// So that texts with a descriptor's number are too long for a string without an allocation.
class ManyDescriptors {
 public:
  ManyDescriptors() {
    for (os::UniqueFd& taken : taken_) taken = os::UniqueFd(::dup(STDIN_FILENO));
  }

 private:
  std::array<os::UniqueFd, 100> taken_;
};

}  // namespace

TEST_CASE_FIXTURE(ManyDescriptors, "refused calls of opening, reading and looking") {
  const struct {
    const char* name;
    Operation operation;
    std::vector<const char*> files;
  } rows[] = {
      {"opening",
       opens(),
       {"state_dict.pt", "many_state_dict.pt", "training.pt", "scripted.pt", "rezipped_deflated.pt",
        "sparse.pt", "quantized.pt", "big_endian.pt", "legacy/dict.pt"}},
      {"opening with proof", opens({.verify = Verify::crc}), {"state_dict.pt"}},
      {"opening with the guard", opens({.protection = Protection::guard}), {"state_dict.pt"}},
      {"opening with pages brought in", opens({.populate = true}), {"state_dict.pt"}},
      {"writing to private pages", opens_copy_on_write, {"state_dict.pt"}},
      {"walking the tree", walks_the_tree, {"state_dict.pt"}},
      {"reading an archive", reads_records, {"state_dict.pt", "rezipped_deflated.pt"}},
      {"listing globals", lists_globals, {"state_dict.pt", "legacy/dict.pt"}},
      {"warming", warms, {"state_dict.pt"}},
      {"looking at residency", looks_at_residency, {"state_dict.pt"}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    for (const char* file : row.files) check_every_call(row.operation, test::data / file);
  }
}

TEST_CASE_FIXTURE(ManyDescriptors, "refused calls of a conversion") {
  const test::TemporaryFolder folder;
  const std::filesystem::path& there = folder.path();
  check_every_call(converts_into(there), test::data / "state_dict.pt", [&] {
    for (const auto& file : std::filesystem::directory_iterator(there)) {
      CHECK(file.path().filename() == "converted.pt");
      REQUIRE_OK(opens()(file.path()));
      std::filesystem::remove(file.path());
    }
  });
}
