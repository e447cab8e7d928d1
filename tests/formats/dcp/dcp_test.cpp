// Folders of torch.distributed.checkpoint: their metadata, their items, their files.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/named_tensor.hpp"

using namespace weightmap;
using namespace std::string_literals;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

const std::string first_file = "__0_0.distcp";
const std::string second_file = "__1_0.distcp";

// "w" of 2 x 3 bytes in one chunk.
DcpFolder plain() {
  return DcpFolder().add("w", {2, 3}, {{{0, 0}, {2, 3}, "abcdef"}}, test::uint8_elements);
}
// And in two, in two files.
DcpFolder divided() {
  return DcpFolder().add(
      "w", {2, 3}, {{{0, 0}, {1, 3}, "abc", first_file}, {{1, 0}, {1, 3}, "def", second_file}},
      test::uint8_elements);
}

// Returns what an open has that proves all items. One that proves none must come to the same, at
// the latest when all of its tensors are used.
Result<Checkpoint> open(const DcpFolder& made, OpenOptions options = {.verify = Verify::headers}) {
  const TemporaryFolder folder;
  made.write(folder);
  Result<Checkpoint> at_once = Checkpoint::open(folder.path(), options);
  options.verify = Verify::chain;
  const Result<Checkpoint> late = Checkpoint::open(folder.path(), options);
  const Result<void> used = late ? verify_headers(*late) : tl::unexpected<Error>(late.error());
  CHECK(used.has_value() == at_once.has_value());
  if (!used && !at_once) {
    CHECK(used.error().message == at_once.error().message);
    CHECK(used.error().file_offset == at_once.error().file_offset);
  }
  return at_once;
}
// Of one tensor that is said to be this.
Result<Checkpoint> open_tensor(const std::string& text) {
  DcpFolder made = plain();
  made.tensors = {{test::unicode("w"), text}};
  return open(made);
}
Result<Checkpoint> open_item(const std::string& item, const std::string& dtype = "uint8") {
  DcpFolder made;
  made.put("w", {0, 0}, item);
  made.tensors = {{test::unicode("w"), test::tensor_metadata({2, 3}, {test::chunk({0, 0}, {2, 3})},
                                                             test::properties(dtype))}};
  return open(made);
}

std::string elements(const Checkpoint& checkpoint, std::string_view name) {
  const NamedTensor tensor = checkpoint.get(name).value();
  std::string bytes(tensor.view.nbytes(), '\0');
  REQUIRE_OK(checkpoint.gather(tensor.view, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}
std::string whole(const Checkpoint& checkpoint, std::string_view name, std::size_t nbytes) {
  std::string bytes(nbytes, '\0');
  REQUIRE_OK(gather(checkpoint, name, {}, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}
std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> all;
  for (const NamedTensor& tensor : checkpoint.tensors()) all.emplace_back(tensor.name);
  return all;
}

}  // namespace

TEST_CASE("a tensor of one chunk is one as in any other checkpoint") {
  const TemporaryFolder folder;
  plain().write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  CHECK(checkpoint.info().format == Format::dcp);
  CHECK(names(checkpoint) == std::vector<std::string>{"w"});
  CHECK(composed_tensors(checkpoint).empty());
  CHECK(elements(checkpoint, "w") == "abcdef");
}

TEST_CASE("a tensor of several chunks is listed as these, in row-major order") {
  const TemporaryFolder folder;
  DcpFolder()
      .add("w", {2, 4},
           {{{0, 2}, {2, 2}, "cdgh", second_file}, {{0, 0}, {2, 2}, "abef", first_file}},
           test::uint8_elements, test::properties("uint8", "strided", true))
      .write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  CHECK(names(checkpoint) == std::vector<std::string>{"w[0:2, 0:2]", "w[0:2, 2:4]"});
  REQUIRE(composed_tensors(checkpoint).size() == 1);
  const ComposedTensor& composed = composed_tensors(checkpoint).front();
  CHECK(composed.name == "w");
  CHECK(composed.form == ComposedTensor::Form::chunked);
  CHECK(composed.dtype == DType::uint8);
  CHECK(composed.sizes == test::Sizes{2, 4});
  CHECK(composed.offsets == test::Sizes{0, 0, 0, 2});
  CHECK(composed.requires_grad);
  CHECK(elements(checkpoint, "w[0:2, 2:4]") == "cdgh");
  CHECK(whole(checkpoint, "w", 8) == "abcdefgh");
  CHECK_FAILS(checkpoint.get("w"), ErrorCode::unsupported,
              "has tensor \"w\" in 2 pieces; pieces() gives them, gather() copies them into one");
}

TEST_CASE("a chunk has the strides that it was stored with") {
  const TemporaryFolder folder;
  DcpFolder()
      .add("w", {3, 2}, {{{0, 0}, {3, 2}, "abcdef", first_file, {1, 3}}}, test::uint8_elements)
      .write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  CHECK(elements(checkpoint, "w") == "adbecf");
}

TEST_CASE("a name that the path makes is found by it") {
  DcpFolder made = DcpFolder().add("model.0.weight", {1}, {{{0}, {1}, "x"}}, test::uint8_elements);
  made.paths = test::dict(
      {{test::unicode("model.0.weight"),
        "(" + test::unicode("model") + test::integer(0) + test::unicode("weight") + "t"}});
  const TemporaryFolder folder;
  made.write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  CHECK(checkpoint.path(0).size() == 3);
}

TEST_CASE("empty chunks are left out, and an empty tensor keeps one") {
  const TemporaryFolder folder;
  DcpFolder()
      .add("w", {1, 4}, {{{0, 0}, {1, 4}, "abcd"}, {{1, 0}, {0, 4}, "", second_file}},
           test::uint8_elements)
      .add("e", {0, 2}, {{{0, 0}, {0, 2}, ""}}, test::uint8_elements)
      .add("s", {}, {{{}, {}, "x"}}, test::uint8_elements)
      .write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  CHECK(names(checkpoint) == std::vector<std::string>{"w", "e", "s"});
  CHECK(elements(checkpoint, "w") == "abcd");
  CHECK(elements(checkpoint, "e").empty());
  CHECK(elements(checkpoint, "s") == "x");
}

TEST_CASE("an empty tensor that is divided along another dimension is listed whole") {
  const TemporaryFolder folder;
  DcpFolder()
      .add("e", {2, 0, 3}, {{{0, 0, 0}, {2, 0, 2}, ""}, {{0, 0, 2}, {2, 0, 1}, "", second_file}},
           test::uint8_elements)
      .write(folder);
  const Checkpoint checkpoint = opened(folder.path());
  const Result<NamedTensor> tensor = checkpoint.get("e");
  REQUIRE_OK(tensor);
  CHECK(std::ranges::equal(tensor->view.shape(), test::Sizes{2, 0, 3}));
  CHECK(std::ranges::equal(tensor->view.strides(), test::Sizes{3, 3, 1}));
  CHECK_FAILS(open_tensor(test::tensor_metadata({0, 3}, {})), ErrorCode::corrupt,
              "tensor \"w\" is empty and in none of the files");
}

TEST_CASE("classes may be called as in torch 1.13") {
  DcpFolder made = plain();
  const std::string old = "torch.distributed._shard.checkpoint.metadata";
  made.tensors = {
      {test::unicode("w"), test::dataclass("TensorStorageMetadata",
                                           {{"properties", test::properties("uint8")},
                                            {"size", test::torch_size({2, 3})},
                                            {"chunks", test::list({test::chunk({0, 0}, {2, 3})})}},
                                           old)}};
  CHECK(open(made));
}

TEST_CASE("an item of another dtype than the metadata says") {
  CHECK(open_item(test::item_of("abcdef", {2, 3}, test::uint8_elements)));
  CHECK_FAILS(open_item(test::item_of("abcdef", {2, 3}, {"int8", "CharStorage", 1})),
              ErrorCode::corrupt, "it has elements of int8, and the metadata says uint8");
}

TEST_CASE("an error names the file, the tensor, the chunk and the byte") {
  DcpFolder made = divided();
  const TemporaryFolder folder;
  made.write(folder);
  const std::string content = made.files.at(second_file);
  folder.write(second_file, content.substr(0, content.size() - 1));
  const Result<Checkpoint> cut = Checkpoint::open(folder.path());
  CHECK_FAILS(cut, ErrorCode::corrupt,
              "tensor \"w\", chunk at [1, 0]: its " + std::to_string(content.size()) +
                  " bytes leave the file of " + std::to_string(content.size() - 1));
  CHECK(cut.error().file == (folder.path() / second_file).native());
  CHECK(cut.error().file_offset == 0);
}

TEST_CASE("metadata of each rank: the chunks of all of them, equal ones once") {
  const DcpFolder first =
      DcpFolder().add("w", {2, 3}, {{{0, 0}, {1, 3}, "abc"}}, test::uint8_elements);
  const DcpFolder second =
      DcpFolder().add("w", {2, 3}, {{{1, 0}, {1, 3}, "def", second_file}}, test::uint8_elements);
  const TemporaryFolder folder;
  first.write(folder, "__0.metadata");
  second.write(folder, "__1.metadata");
  Checkpoint checkpoint = opened(folder.path());
  CHECK(whole(checkpoint, "w", 6) == "abcdef");
  CHECK(whole(opened(folder.path() / "__1.metadata"), "w", 6) == "abcdef");
  const auto files = files_of(folder.path()).value();
  CHECK(files == std::vector<fs::path>{folder.path() / "__0.metadata",
                                       folder.path() / "__1.metadata", folder.path() / first_file,
                                       folder.path() / second_file});
  // The names of the second are still there when the first is all that is kept of the metadata.
  CHECK(names(checkpoint) == std::vector<std::string>{"w[0:1, 0:3]", "w[1:2, 0:3]"});
  DcpFolder()
      .add("w", {3, 3}, {{{1, 0}, {1, 3}, "def", second_file}}, test::uint8_elements)
      .write(folder, "__1.metadata");
  CHECK_FAILS(
      Checkpoint::open(folder.path()), ErrorCode::corrupt,
      "tensor \"w\" is of uint8 and [2, 3] for one rank, and of uint8 and [3, 3] for another");
  folder.write("__1.metadata", "no pickle");
  const auto damaged = Checkpoint::open(folder.path());
  REQUIRE_FALSE(damaged.has_value());
  CHECK(damaged.error().file == (folder.path() / "__1.metadata").string());
  fs::remove(folder.path() / "__0.metadata");
  CHECK_FAILS(Checkpoint::open(folder.path()), ErrorCode::not_found, "\"__0.metadata\" is missing");
}

TEST_CASE("metadata is no file of a list, where it would be taken for another rank's") {
  const TemporaryFolder first, second;
  divided().write(first);
  divided().write(second);
  const std::vector<fs::path> paths{first.path() / ".metadata", second.path() / ".metadata"};
  CHECK_FAILS_IN(Checkpoint::open_files(paths), ErrorCode::invalid_argument,
                 "is metadata of torch.distributed.checkpoint, which is opened alone",
                 paths.front().string());
}

TEST_CASE("the folder, its metadata, and not one of its files") {
  const TemporaryFolder folder;
  divided().write(folder);
  CHECK(whole(opened(folder.path()), "w", 6) == "abcdef");
  CHECK(whole(opened(folder.path() / ".metadata"), "w", 6) == "abcdef");
  CHECK_FAILS(Checkpoint::open(folder.path() / first_file), ErrorCode::invalid_argument,
              "is one file of a folder of torch.distributed.checkpoint; open the folder");
  const auto files = files_of(folder.path()).value();
  CHECK(files == std::vector<fs::path>{folder.path() / ".metadata", folder.path() / first_file,
                                       folder.path() / second_file});
  fs::remove(folder.path() / ".metadata");
  CHECK_FAILS(Checkpoint::open(folder.path()), ErrorCode::not_found, "the save did not end");
}

TEST_CASE("a file that is replaced is seen, and read by the next open") {
  for (const std::string& file : {".metadata"s, first_file, second_file}) {
    const TemporaryFolder folder;
    DcpFolder made = divided();
    made.write(folder);
    const Checkpoint checkpoint = opened(folder.path());
    CHECK(checkpoint.is_current());
    DcpFolder other = DcpFolder().add(
        "w", {2, 3}, {{{0, 0}, {1, 3}, "ABC", first_file}, {{1, 0}, {1, 3}, "DEF", second_file}},
        test::uint8_elements);
    test::replace(folder.path() / file,
                  file == ".metadata" ? made.metadata() : other.files.at(file));
    CHECK_FALSE(checkpoint.is_current());
    CHECK(whole(checkpoint, "w", 6) == "abcdef");
    const Checkpoint again = checkpoint.reopen().value();
    CHECK(again.is_current());
    CHECK(whole(again, "w", 6) == (file == first_file    ? "ABCdef"
                                   : file == second_file ? "abcDEF"
                                                         : "abcdef"));
  }
}

namespace {

// With metadata in which the memo has what the tensors are made of from the places.
Result<Checkpoint> open_places_first(const DcpFolder& made, const std::string& tensors) {
  const TemporaryFolder folder;
  made.write(folder);
  folder.write(".metadata",
               "\x80\x02" +
                   test::dataclass("Metadata", {{"storage_data", test::dict(made.places)},
                                                {"state_dict_metadata", tensors}}) +
                   ".");
  return Checkpoint::open(folder.path());
}

}  // namespace

TEST_CASE("names that many chunks repeat do not grow the tables without bound") {
  const std::string name(1 << 20, 'n');
  DcpFolder made;
  std::vector<DcpFolder::Chunk> chunks;
  std::vector<std::string> listed;
  const std::string item = test::item_of("x", {1}, test::uint8_elements);
  made.files[first_file] = item;
  // The name once, and from then on as the memo has it.
  const auto length = static_cast<std::int64_t>(item.size());
  for (std::int64_t i = 0; i < 400; ++i) {
    const std::string fqn = i == 0 ? test::unicode(name) + "q\1" : "h\1"s;
    made.places.emplace_back(
        test::dataclass("MetadataIndex", {{"fqn", fqn}, {"offset", test::torch_size({i})}}),
        test::place_of(first_file, 0, length));
    listed.push_back(test::chunk({i}, {1}));
  }
  const std::string tensors =
      test::dict({{"h\1", test::tensor_metadata({400}, listed, test::properties("uint8"))}});
  CHECK_FAILS(open_places_first(made, tensors), ErrorCode::limit_exceeded,
              "the names and shapes of the chunks need more memory");
}

TEST_CASE("chunks of which the memo has all parts do not grow the tables without bound") {
  const std::vector<std::int64_t> zeros(64, 0);
  const std::vector<std::int64_t> ones(64, 1);
  const std::string item = test::item_of("x", ones, test::uint8_elements);
  const auto length = static_cast<std::int64_t>(item.size());
  DcpFolder made;
  made.files[first_file] = item;
  std::vector<std::pair<std::string, std::string>> tensors;
  // Each part once, and from then on as the memo has it: 50 bytes for each tensor.
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = test::unicode("t" + std::to_string(i));
    const std::string begin = i == 0 ? test::torch_size(zeros) + "q\1" : "h\1"s;
    made.places.emplace_back(test::dataclass("MetadataIndex", {{"fqn", name}, {"offset", begin}}),
                             i == 0 ? test::place_of(first_file, 0, length) + "q\2" : "h\2"s);
    tensors.emplace_back(name, i == 0 ? test::tensor_metadata(ones, {test::chunk(zeros, ones)},
                                                              test::properties("uint8")) +
                                            "q\3"
                                      : "h\3"s);
  }
  CHECK_FAILS(open_places_first(made, test::dict(tensors)), ErrorCode::limit_exceeded,
              "the chunks of the metadata need more memory than the limit of 25165824 bytes");
}

TEST_CASE("items that lie far apart cost one read each, and one more") {
  constexpr std::int64_t size = 50000;
  DcpFolder made;
  for (const char name : {'a', 'b', 'c', 'd'})
    made.add({name}, {size}, {{{0}, {size}, std::string(size, name)}}, test::uint8_elements);
  const Checkpoint checkpoint = open(made).value();
  CHECK(checkpoint.stats().reads == 1 + 5);  // the metadata, and the ends of the items
  for (const char name : {'a', 'b', 'c', 'd'})
    CHECK(elements(checkpoint, {&name, 1}) == std::string(size, name));
}

TEST_CASE("an item within the bytes of another is read as it is alone") {
  const std::string inner = test::item_of("x", {1}, test::uint8_elements);
  const std::string bytes = std::string(70000, 'y') + inner + std::string(70000, 'y');
  const auto size = static_cast<std::int64_t>(bytes.size());
  DcpFolder made;
  made.add("outer", {size}, {{{0}, {size}, bytes}}, test::uint8_elements);
  const auto at = static_cast<std::int64_t>(made.files[first_file].find(inner));
  made.places.emplace_back(test::index_of("inner", {0}),
                           test::place_of(first_file, at, static_cast<std::int64_t>(inner.size())));
  made.tensors.emplace_back(
      test::unicode("inner"),
      test::tensor_metadata({1}, {test::chunk({0}, {1})}, test::properties("uint8")));
  made.add("behind", {2}, {{{0}, {2}, "zz"}}, test::uint8_elements);
  const Checkpoint checkpoint = open(made).value();
  CHECK(elements(checkpoint, "outer") == bytes);
  CHECK(elements(checkpoint, "inner") == "x");
  CHECK(elements(checkpoint, "behind") == "zz");
}

TEST_CASE("an item that many chunks mean is parsed once") {
  const std::string item = test::item_of("x", {1}, test::uint8_elements);
  const auto length = static_cast<std::int64_t>(item.size());
  DcpFolder made;
  made.files[first_file] = item;
  std::vector<std::string> chunks;
  for (std::int64_t i = 0; i < 300; ++i) {
    made.places.emplace_back(test::index_of("w", {i}), test::place_of(first_file, 0, length));
    chunks.push_back(test::chunk({i}, {1}));
  }
  made.tensors.emplace_back(test::unicode("w"),
                            test::tensor_metadata({300}, chunks, test::properties("uint8")));
  const OpenOptions options{.verify = Verify::headers};
  const Checkpoint checkpoint = open(made, options).value();
  CHECK(checkpoint.stats().verify_reads == 1);
  CHECK(whole(checkpoint, "w", 300) == std::string(300, 'x'));
}
