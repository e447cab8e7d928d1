// How the pages of tensors are read: OpenOptions::access, advise(), and what a warm-up leaves out.
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "mmap/pages/smaps.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::opened;
using test::TemporaryFolder;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// 4 MiB, a table of 16 MiB, and 4 MiB.
struct Model {
  TemporaryFolder folder;
  std::string header =
      R"({"first":{"dtype":"U8","shape":[4194304],"data_offsets":[0,4194304]},)"
      R"("ngram.table":{"dtype":"U8","shape":[65536,256],"data_offsets":[4194304,20971520]},)"
      R"("last":{"dtype":"U8","shape":[4194304],"data_offsets":[20971520,25165824]}})";
  std::filesystem::path path =
      folder.write("model.safetensors", test::framed(header, std::string(24 * mib, 'w')));
  std::uint64_t file_bytes = std::filesystem::file_size(path);

  using Pairs = std::vector<std::pair<std::string, Access>>;
  Checkpoint with(Pairs access) const { return opened(path, {.access = std::move(access)}); }
};

// True if the system reads no page ahead in the mapping that has this byte.
bool is_random(const std::byte* byte) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  mmap::MappedArea area;
  bool is_in_it = false;
  while (std::getline(smaps, line)) {
    const auto address = reinterpret_cast<std::uint64_t>(byte);
    if (mmap::parse_area(line, area)) is_in_it = area.begin <= address && address < area.end;
    if (is_in_it && line.starts_with("VmFlags:")) return line.find(" rr") != std::string::npos;
  }
  FAIL("no mapping has it");
  return false;
}

const std::byte* middle_of(const Checkpoint& checkpoint, std::string_view name) {
  const std::span<const std::byte> bytes = checkpoint.find(name)->bytes();
  return bytes.data() + bytes.size() / 2;
}

std::uint64_t warmed_bytes(const Checkpoint& checkpoint, const WarmOptions& options = {}) {
  Result<Warmer> warmer = Warmer::start(checkpoint, options);
  REQUIRE_OK(warmer);
  const Result<WarmReport> report = warmer->wait();
  REQUIRE_OK(report);
  return report->bytes_done;
}

}  // namespace

TEST_CASE_FIXTURE(Model, "An open advises the tensors whose names match, and no others") {
  const Checkpoint checkpoint = with({{"*ngram*", Access::random}});
  CHECK(is_random(middle_of(checkpoint, "ngram.table")));
  CHECK_FALSE(is_random(middle_of(checkpoint, "first")));
  CHECK_FALSE(is_random(middle_of(checkpoint, "last")));
}

TEST_CASE_FIXTURE(Model, "The last pattern of a tensor's counts") {
  const Checkpoint checkpoint = with({{"*", Access::random}, {"ngram.*", Access::normal}});
  CHECK_FALSE(is_random(middle_of(checkpoint, "ngram.table")));
  CHECK(is_random(middle_of(checkpoint, "first")));
}

TEST_CASE_FIXTURE(Model, "A pattern that matches nothing is a mistake") {
  CHECK_FAILS(Checkpoint::open(path, {.access = {{"ngarm*", Access::random}}}),
              ErrorCode::invalid_argument,
              "the option access has \"ngarm*\", which matches the name of no tensor");
}

TEST_CASE("A pattern matches a tensor that is in pieces, and all of them are advised") {
  TemporaryFolder folder;
  const auto shard = [](const std::string& offset, const std::string& bytes) {
    const std::string info = R"({\"w\": {\"saved_offsets\": [)" + offset + R"(, 0]}})";
    return test::framed(R"({"__metadata__":{"DCP_SHARDING_INFO":")" + info +
                            R"("},"w":{"dtype":"U8","shape":[2,4096],"data_offsets":[0,8192]}})",
                        bytes);
  };
  folder.write("shard-00001-model-00001-of-00001.safetensors", shard("0", std::string(8192, 'a')));
  folder.write("shard-00002-model-00001-of-00001.safetensors", shard("2", std::string(8192, 'b')));
  const Checkpoint checkpoint = opened(folder.path(), {.access = {{"w", Access::random}}});
  REQUIRE(checkpoint.tensors().size() == 2);
  for (const NamedTensor& piece : checkpoint.tensors())
    CHECK(is_random(piece.view.bytes().data() + 4096));
}

TEST_CASE_FIXTURE(Model,
                  "Memory that is lent to be written to is advised alike, made before or after") {
  const Checkpoint checkpoint = opened(path);
  const TensorView table = *checkpoint.find("ngram.table");
  const std::byte* const base = checkpoint.mapping().data();
  const std::ptrdiff_t place = middle_of(checkpoint, "ngram.table") - base;
  SUBCASE("before") {
    const std::byte* const lent = Backing(checkpoint).copy_on_write().value().data();
    REQUIRE(lent != base);
    REQUIRE_OK(advise(checkpoint, table, Access::random));
    CHECK(is_random(lent + place));
    CHECK_FALSE(is_random(lent + 2 * mib));
    REQUIRE_OK(advise(checkpoint, table, Access::normal));
    CHECK_FALSE(is_random(lent + place));
  }
  SUBCASE("after") {
    REQUIRE_OK(advise(checkpoint, table, Access::random));
    const std::byte* const lent = Backing(checkpoint).copy_on_write().value().data();
    CHECK(is_random(lent + place));
    CHECK_FALSE(is_random(lent + 2 * mib));
  }
}

// Of the table the large pages at its borders, which it shares with its neighbours.
TEST_CASE_FIXTURE(Model, "A warm-up of the whole checkpoint leaves out what is random") {
  const Checkpoint checkpoint = with({{"*ngram*", Access::random}});
  CHECK(warmed_bytes(checkpoint) == file_bytes - 14 * mib);
  CHECK(warmed_bytes(checkpoint, {.follow = true}) == file_bytes - 14 * mib);
  CHECK(is_random(middle_of(checkpoint, "ngram.table")));
  CHECK_FALSE(is_random(middle_of(checkpoint, "first")));
  // Which turns read-ahead off and on again.
  WarmOptions parts;
  parts.slices.push_back(TensorSlice::of(*checkpoint.find("last")).value());
  CHECK(warmed_bytes(checkpoint, parts) > 4 * mib - 1);
  CHECK(is_random(middle_of(checkpoint, "ngram.table")));
  CHECK_FALSE(is_random(middle_of(checkpoint, "last")));
  const std::size_t table = checkpoint.get("ngram.table")->index;
  CHECK(warmed_bytes(checkpoint, {.tensors = {table}}) == 18 * mib);
  CHECK(is_random(middle_of(checkpoint, "ngram.table")));
  REQUIRE_OK(advise(checkpoint, *checkpoint.find("ngram.table"), Access::normal));
  CHECK(warmed_bytes(checkpoint) == file_bytes);
}

TEST_CASE_FIXTURE(Model, "What rows are read of is random") {
  const Checkpoint checkpoint = opened(path);
  const RowReader rows = RowReader::of(checkpoint, {"ngram.table"}).value();
  CHECK(is_random(middle_of(checkpoint, "ngram.table")));
  CHECK(warmed_bytes(checkpoint) == file_bytes - 14 * mib);
}

TEST_CASE_FIXTURE(Model, "If all is random, nothing is warmed") {
  CHECK(warmed_bytes(with({{"*", Access::random}})) <= 2 * mib);
}
