// Storages that another program compressed: copied into memory, flagged, bounded, refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace weightmap::test;

namespace {

const auto deflated = data / "rezipped_deflated.pt";

std::vector<std::byte> elements(const TensorView& view) {
  std::vector<std::byte> out(view.nbytes());
  REQUIRE_OK(view.gather(out));
  return out;
}

}  // namespace

TEST_CASE("compressed storages have the elements that they had before") {
  const Checkpoint before = opened(data / "state_dict.pt");
  const Checkpoint after = opened(deflated);
  REQUIRE(after.tensors().size() == before.tensors().size());
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : after.tensors()) {
    CAPTURE(tensor.name);
    CHECK(elements(tensor.view) == elements(before.get(tensor.name)->view));
    CHECK(tensor.is_copied);
    CHECK_FALSE(tensor.is_zero_copy());
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.view.data()) % 64 == 0);
    std::vector<std::byte> safely(tensor.view.nbytes());
    REQUIRE_OK(after.gather(tensor.view, safely));
    CHECK(safely == elements(tensor.view));
    bytes += Backing(after).storage(tensor.storage_index).nbytes;
  }
  CHECK(after.stats().storages_copied == Backing(before).storage_count());
  CHECK(after.stats().bytes_copied == bytes);
  CHECK(before.stats().storages_copied == 0);
  CHECK_FALSE((*before.tensors().begin()).is_copied);
  CHECK(after.info().file_bytes == std::filesystem::file_size(deflated));
}

TEST_CASE("the copies of compressed storages are a source behind the file") {
  const Checkpoint checkpoint = opened(deflated);
  REQUIRE(checkpoint.source_count() == 2);
  CHECK_FALSE(checkpoint.source(0).is_copy);
  CHECK(checkpoint.source(1).is_copy);
  CHECK(checkpoint.source(1).path.empty());
  for (const NamedTensor& tensor : checkpoint.tensors())
    CHECK(tensor.view.data() ==
          checkpoint.mapping().data() + checkpoint.source(1).mapping_offset + tensor.file_offset);
  CHECK(checkpoint.state() == CheckpointState::current);
  CHECK(checkpoint.is_current());
  const Checkpoint again = checkpoint.reopen().value();
  CHECK(again.stats().storages_copied == checkpoint.stats().storages_copied);
}

TEST_CASE("compressed storages are verified, and written to in private memory") {
  OpenOptions options{.sharing = Sharing::private_, .writable = true};
  Checkpoint checkpoint = opened(deflated, options);
  REQUIRE_OK(verify_headers(checkpoint));
  CHECK(verify_crc(checkpoint).faults.empty());
  const NamedTensor bias = checkpoint.get("layers.0.bias").value();
  checkpoint.writable_bytes(bias.view).value()[0] = std::byte{7};
  CHECK(bias.view.bytes()[0] == std::byte{7});
  const Checkpoint other = opened(deflated);
  CHECK(other.get("layers.0.bias")->view.bytes()[0] == std::byte{0});
  REQUIRE_OK(Backing(other).copy_on_write());
  options.sharing = Sharing::shared;
  const test::TemporaryFolder folder;
  CHECK_FAILS(Checkpoint::open(folder.write("copy.pt", read_file(deflated)), options),
              ErrorCode::unsupported, "has compressed storages");
}

TEST_CASE("compressed storages are there under every way to map a file") {
  const OpenOptions options{.populate = true, .protection = Protection::guard};
  const Checkpoint guarded = opened(deflated, options);
  CHECK(verify_crc(guarded).faults.empty());
  CHECK(guarded.state() == CheckpointState::current);
  const ResidencyReport report = residency(guarded).value();
  CHECK(report.file.file_bytes == guarded.info().file_bytes);
  CHECK(report.file.cached_bytes <= report.file.file_bytes);
  REQUIRE_OK(Warmer::start(guarded).value().wait());
  REQUIRE_OK(guarded.demand(guarded.get("layers.0.bias")->view));
}

TEST_CASE("refuses copies where only zero-copy will do, naming the record") {
  const OpenOptions options{.zero_copy_only = true};
  CHECK_FAILS(Checkpoint::open(deflated, options), ErrorCode::unsupported,
              "record \"state_dict/data/0\" is compressed, so it would have to be copied");
  CHECK_FAILS(Checkpoint::open(data / "big_endian.pt", options), ErrorCode::unsupported,
              "is big-endian, so it would have to be copied");
  REQUIRE_OK(Checkpoint::open(data / "state_dict.pt", options));
  const Checkpoint big = opened(data / "big_endian.pt");
  CHECK_FALSE((*big.tensors().begin()).is_zero_copy());
}

TEST_CASE("finds damage in what is compressed") {
  const std::string whole = read_file(deflated);
  const Checkpoint before = opened(deflated);
  const test::TemporaryFolder folder;
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const auto checkpoint = Checkpoint::open(folder.write("damaged.pt", damaged));
    refused += checkpoint ? 0 : 1;
    if (!checkpoint) continue;
    for (const NamedTensor& tensor : checkpoint->tensors())
      if (const auto known = before.get(tensor.name); known && tensor.is_copied)
        if (known->view.nbytes() == tensor.view.nbytes())
          CHECK(elements(tensor.view) == elements(known->view));
  }
  CHECK(refused > whole.size() / 2);
}
