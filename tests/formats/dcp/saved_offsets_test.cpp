// Shards as torch's HuggingFaceStorageWriter leaves them: each says where its parts of tensors
// begin.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::TemporaryFolder;

namespace {

// A tensor: its name, its shape as JSON has it, its bytes, and its dtype.
struct Part {
  std::string name;
  std::string shape;
  std::string bytes;
  std::string dtype = "U8";
};

// The JSON text `info` is a text in JSON.
std::string shard(const std::string& info, const std::vector<Part>& parts) {
  std::string escaped;
  for (const char c : info) escaped += c == '"' ? "\\\""s : std::string(1, c);
  std::string header = R"({"__metadata__":{"DCP_SHARDING_INFO":")" + escaped + "\"}";
  std::string data;
  for (const Part& part : parts) {
    header += ",\"" + part.name + R"(":{"dtype":")" + part.dtype + R"(","shape":)" + part.shape +
              R"(,"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + part.bytes.size()) + "]}";
    data += part.bytes;
  }
  return test::framed(header + "}", data);
}

struct Ranks {
  TemporaryFolder folder;
  int count = 0;

  Ranks& add(const std::string& info, const std::vector<Part>& parts) {
    const std::string number = std::to_string(++count);
    folder.write("shard-0000" + number + "-model-00001-of-00001.safetensors", shard(info, parts));
    return *this;
  }
  Result<Checkpoint> open() const { return Checkpoint::open(folder.path()); }
};

std::string gathered(const Checkpoint& checkpoint, const std::string& name) {
  const auto tensor = whole_tensor(checkpoint, name).value();
  std::size_t bytes = 1;
  for (const std::int64_t size : tensor.sizes) bytes *= static_cast<std::size_t>(size);
  std::string text(bytes, '?');
  REQUIRE_OK(gather(checkpoint, name, {}, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

TEST_CASE("parts of ranks are put together") {
  Ranks ranks;
  ranks.add(R"({"w": {"saved_offsets": [0, 0]}, "c": {"saved_offsets": [0, 2]}})",
            {{"w", "[1,3]", "abc"}, {"c", "[2,1]", "36"}});
  ranks.add(R"({"w": {"saved_offsets": [1, 0]}, "c": {"saved_offsets": [0, 0]}})",
            {{"w", "[2,3]", "defghi"}, {"c", "[2,2]", "1245"}});
  const auto checkpoint = ranks.open().value();
  CHECK(checkpoint.info().format == Format::safetensors);
  CHECK(gathered(checkpoint, "w") == "abcdefghi");
  CHECK(gathered(checkpoint, "c") == "123456");
  CHECK(checkpoint.contains("w[1:3, 0:3]"));
  CHECK(checkpoint.get("w").error().message.find("has tensor \"w\" in 2 pieces; pieces() gives") !=
        std::string::npos);
  CHECK(whole_names(checkpoint) == std::vector<std::string_view>{"w", "c"});
}

TEST_CASE("what only one rank has, and what all have alike, is an ordinary tensor") {
  Ranks ranks;
  ranks.add(R"({"all": {"saved_offsets": [0]}})", {{"all", "[2]", "xy"}, {"unnamed", "[1]", "u"}});
  ranks.add(R"({"all": {"saved_offsets": [0]}, "one": {"saved_offsets": [0]}})",
            {{"all", "[2]", "xy"}, {"one", "[1]", "o"}});
  const auto checkpoint = ranks.open().value();
  CHECK(checkpoint.tensors().size() == 3);
  CHECK(gathered(checkpoint, "all") == "xy");
  CHECK(gathered(checkpoint, "one") == "o");
  CHECK(gathered(checkpoint, "unnamed") == "u");
}

TEST_CASE("the file of one rank alone is refused if its parts begin elsewhere than the tensors") {
  const std::string shards = R"({"first": {"saved_offsets": [0]}, "w": {"saved_offsets": [0, 2]}})";
  Ranks ranks;
  ranks.add(shards, {{"first", "[1]", "a"}, {"w", "[1,2]", "bc"}});
  const std::string message =
      "is the file of one rank: its DCP_SHARDING_INFO says that its part of tensor \"w\" begins at "
      "[0, 2] of the whole; copy the files of all ranks into one folder, from a store by its own "
      "program, and give that folder instead";
  CHECK_FAILS(ranks.open(), ErrorCode::invalid_argument, message);
  const auto bytes = shard(shards, {{"first", "[1]", "a"}, {"w", "[1,2]", "bc"}});
  CHECK_FAILS(Checkpoint::open_memory(std::as_bytes(std::span(bytes)), nullptr),
              ErrorCode::invalid_argument, message);
}

TEST_CASE("the file of one rank is refused if those of others lie beside it") {
  Ranks ranks;
  ranks.add(R"({"w": {"saved_offsets": [0]}})", {{"w", "[2]", "ab"}});
  const auto first = ranks.folder.path() / "shard-00001-model-00001-of-00001.safetensors";
  REQUIRE_OK(Checkpoint::open(first));
  ranks.add(R"({"w": {"saved_offsets": [2]}})", {{"w", "[2]", "cd"}});
  CHECK_FAILS(Checkpoint::open(first), ErrorCode::invalid_argument,
              "is the file of one rank, which may have no more than parts of its tensors: "
              "\"shard-00002-model-00001-of-00001.safetensors\" beside it is that of another; open "
              "the folder");
  CHECK(gathered(*ranks.open(), "w") == "abcd");
}

TEST_CASE("parts beside a file that has no offsets are refused, since they cannot be joined") {
  Ranks ranks;
  ranks.add(R"({"w": {"saved_offsets": [2]}})", {{"w", "[2]", "cd"}});
  ranks.folder.write("shard-00002-model-00001-of-00001.safetensors",
                     test::safetensors({{"v", "v"}}));
  const auto opened = ranks.open();
  CHECK_FAILS(opened, ErrorCode::invalid_argument, "its part of tensor \"w\" begins at [2]");
  CHECK(opened.error().file.ends_with("shard-00001-model-00001-of-00001.safetensors"));
}

TEST_CASE("parts that leave a hole, or overlap, are refused") {
  Ranks hole;
  hole.add(R"({"w": {"saved_offsets": [0]}})", {{"w", "[2]", "ab"}});
  hole.add(R"({"w": {"saved_offsets": [3]}})", {{"w", "[2]", "de"}});
  CHECK_FAILS(hole.open(), ErrorCode::corrupt,
              "tensor \"w\" has 5 elements, of which only 4 are in the chunks");
  Ranks overlap;
  overlap.add(R"({"w": {"saved_offsets": [0]}})", {{"w", "[2]", "ab"}});
  overlap.add(R"({"w": {"saved_offsets": [1]}})", {{"w", "[2]", "bc"}});
  CHECK_FAILS(overlap.open(), ErrorCode::corrupt,
              "tensor \"w\" has chunks that overlap, at [0] of sizes [2] and at [1] of sizes [2]");
}

TEST_CASE("parts of two dtypes are refused") {
  Ranks ranks;
  ranks.add(R"({"w": {"saved_offsets": [0]}})", {{"w", "[2]", "ab"}});
  ranks.add(R"({"w": {"saved_offsets": [2]}})", {{"w", "[2]", "cd", "I8"}});
  CHECK_FAILS(
      ranks.open(), ErrorCode::corrupt,
      "tensor \"w\" has parts of different dtypes or ranks, one of int8 at [2] of sizes [2]");
}

TEST_CASE("offsets that are not as torch writes them are refused with the name of the file") {
  const auto refused = [](const std::string& info) {
    Ranks ranks;
    ranks.add(R"({"w": {"saved_offsets": [0]}})", {{"w", "[2]", "ab"}});
    ranks.add(info, {{"w", "[2]", "cd"}});
    const auto opened = ranks.open();
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == ErrorCode::corrupt);
    CHECK(opened.error().file.ends_with("shard-00002-model-00001-of-00001.safetensors"));
    return opened.error().message;
  };
  const std::string no_list = "DCP_SHARDING_INFO has no list of saved_offsets for tensor \"w\"";
  CHECK(refused(R"({"w": {"saved_offsets": "0"}})") == no_list);
  CHECK(refused(R"({"w": {"saved_offsets": [-1]}})") == no_list);
  CHECK(refused(R"({"w": {"saved_offsets": [1.5]}})") == no_list);
  CHECK(refused(R"({"w": {}})") == no_list);
  CHECK(refused(R"({"w": 2})") == no_list);
  CHECK(refused(R"({"w")").starts_with("DCP_SHARDING_INFO: "));
  CHECK(refused(R"({"w": {"saved_offsets": [2, 0]}})") ==
        "tensor \"w\" has parts of different dtypes or ranks, one of uint8 at [2, 0] of sizes [2]");
  CHECK(refused(R"({"w": {"saved_offsets": [9223372036854775807]}})") ==
        "tensor \"w\" has a part at [9223372036854775807], beyond 63 bits");
}
