// The values of folders of torch.distributed.checkpoint that are no tensors: where they are in the
// nested dict, and what is said of an item that cannot be read.
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/value.hpp"

using namespace weightmap;
using namespace weightmap::test;

namespace {

const std::string file = "__0_0.distcp";

// A folder and its checkpoint, which reads it later.
struct Opened {
  explicit Opened(const DcpFolder& made, const OpenOptions& options = {})
      : checkpoint((made.write(folder), test::opened(folder.path(), options))) {}

  Value root() const { return checkpoint.values().value(); }
  std::optional<std::int64_t> integer_at(std::string_view name) const {
    const std::optional<FoundValue> found = find_value(root(), name);
    return found ? found->value.integer() : std::nullopt;
  }

  TemporaryFolder folder;
  Checkpoint checkpoint;
};

// "w" of 2 x 3 bytes in one chunk.
DcpFolder with_tensor() {
  return DcpFolder().add("w", {2, 3}, {{{0, 0}, {2, 3}, "abcdef"}}, test::uint8_elements);
}

Result<Value> values_of(const DcpFolder& made, const OpenOptions& options = {}) {
  const Opened opened(made, options);
  CHECK(opened.checkpoint.tensors().size() == 1);  // whatever the items are
  return opened.checkpoint.values().map([](const Value&) { return Value(); });
}

}  // namespace

TEST_CASE("values are nested by their paths, in the order of the metadata") {
  const Opened opened(
      with_tensor()
          .at("w", {unicode("model"), unicode("w")})
          .add_object("opt.groups.0.lr", integer(7))
          .at("opt.groups.0.lr", {unicode("opt"), unicode("groups"), integer(0), unicode("lr")})
          .add_object("opt.groups.2", "]")
          .at("opt.groups.2", {unicode("opt"), unicode("groups"), integer(2)})
          .add_object("epoch", integer(3)));
  CHECK(opened.integer_at("epoch") == 3);
  CHECK(opened.integer_at("opt.groups.0.lr") == 7);
  const Value groups = *opened.root().find("opt")->find("groups");
  CHECK(groups.kind() == Value::Kind::list);
  REQUIRE(groups.size() == 3);
  CHECK(groups[1].is_none());
  CHECK(groups[2].kind() == Value::Kind::list);
  std::string keys;
  for (const auto& [key, value] : opened.root().items()) keys += std::string(*key.string()) + " ";
  CHECK(keys == "model opt epoch ");
  const auto tensor = opened.checkpoint.tensor(*opened.root().find("model")->find("w")).value();
  CHECK(tensor.name == "w");
  CHECK(left_out_values(opened.checkpoint).empty());
  CHECK(opened.checkpoint.info().unsupported.empty());
}

TEST_CASE("without paths values have their names, and root() is the metadata") {
  const Opened opened(with_tensor().add_object("a.b", integer(1)));
  CHECK(opened.root().find("a.b")->integer() == 1);
  CHECK(type_name_of(opened.checkpoint.root()) == "torch.distributed.checkpoint.metadata.Metadata");
}

TEST_CASE("a path with keys that are neither texts nor integers is no path") {
  const Opened opened(with_tensor().add_object("a", integer(1)).at("a", {"N"}));
  CHECK(opened.integer_at("a") == 1);
}

TEST_CASE("each item has a memo of its own") {
  const Opened opened(with_tensor()
                          .add_object("a", "]q\x01" + integer(1) + "a")
                          .add_object("b", "]q\x01" + integer(2) + "a"));
  CHECK(opened.integer_at("a.0") == 1);
  CHECK(opened.integer_at("b.0") == 2);
  CHECK_FAILS(values_of(with_tensor().add_object("a", "]q\x01").add_object("b", "h\x01")),
              ErrorCode::corrupt, "\"b\": memo id 1 was never set");
}

TEST_CASE("a tensor in several chunks is described as a whole, by its name") {
  const Opened opened(DcpFolder()
                          .add("w", {2, 3},
                               {{{0, 0}, {1, 3}, "abc"}, {{1, 0}, {1, 3}, "def", "__1_0.distcp"}},
                               test::uint8_elements)
                          .at("w", {unicode("m"), unicode("w")}));
  const Value tensor = *opened.root().find("m")->find("w");
  CHECK(!opened.checkpoint.tensor(tensor));
  CHECK(chunked_name(opened.checkpoint, tensor) == "w");
  CHECK(chunked_name(opened.checkpoint, opened.root()) == std::nullopt);
  CHECK(tensor.arguments()[0].persistent_id()[4].integer() == 6);
}

TEST_CASE("an object with a tensor in it is left out and named") {
  test::Tensor tensor;
  const Opened opened(with_tensor()
                          .add_object("pair", "(" + tensor.text() + "K\x01t", {"abcd"})
                          .add_object("epoch", integer(3)));
  CHECK(opened.integer_at("epoch") == 3);
  CHECK(!opened.root().find("pair"));
  REQUIRE(left_out_values(opened.checkpoint).size() == 1);
  CHECK(left_out_values(opened.checkpoint)[0] == "pair");
}

TEST_CASE("a damaged item is an error about its values alone, with its name, file and offset") {
  DcpFolder made = with_tensor().add_object("epoch", integer(3));
  std::string& content = made.files[file];
  content[content.rfind(integer(3) + ".") + 1] ^= 4;
  const Opened opened(made);
  CHECK(opened.checkpoint.find("w"));
  const Result<Value> failed = opened.checkpoint.values();
  CHECK_FAILS(failed, ErrorCode::corrupt, "\"epoch\": ");
  CHECK(failed.error().file.ends_with("/" + file));
  CHECK(failed.error().file_offset > 0);
  CHECK(failed.error().file_offset < content.size());
}

TEST_CASE("a missing file that has no tensors is an error of the values alone") {
  TemporaryFolder folder;
  with_tensor()
      .add_object("a", integer(1))
      .put_object("b", "an item", "__1_0.distcp")
      .write(folder);
  std::filesystem::remove(folder.path() / "__1_0.distcp");
  const Checkpoint opened = test::opened(folder.path(), {});
  CHECK(opened.source_count() == 2);
  REQUIRE(opened.find("w"));
  CHECK(static_cast<char>(opened.find("w")->bytes()[5]) == 'f');
  CHECK_FAILS(opened.values(), ErrorCode::not_found, "\"b\": its file \"__1_0.distcp\" is missing");
}

TEST_CASE("a missing file that has tensors is an error of the open") {
  TemporaryFolder folder;
  with_tensor().add_object("a", integer(1)).write(folder);
  std::filesystem::remove(folder.path() / file);
  CHECK_FAILS(Checkpoint::open(folder.path()), ErrorCode::io,
              "cannot open the file: No such file or directory; the metadata ");
}

TEST_CASE("refuses items that cannot be read, and paths that lead nowhere") {
  using enum ErrorCode;
  DcpFolder cut = with_tensor().add_object("a", integer(1));
  cut.files[file].pop_back();
  DcpFolder lost = with_tensor().add_object("a", integer(1));
  lost.places.pop_back();
  const std::string deep(41, 'a');
  const auto keys = [](std::size_t count) { return std::vector<std::string>(count, unicode("a")); };
  const struct {
    const char* what;
    DcpFolder folder;
    ErrorCode code;
    const char* words;
  } refusals[] = {
      {"no archive of torch.save", with_tensor().put_object("a", std::string(300, 'x')), corrupt,
       "\"a\": "},
      {"leaves its file", cut, corrupt, "it is truncated, or from another save"},
      {"in none of the files", lost, corrupt, "\"a\": it is in none of the files"},
      {"a name that only an attack needs",
       with_tensor().add_object("a", integer(1)).add_object("b", global("os", "system")),
       unsafe_pickle, "\"b\": "},
      {"a path through another value",
       with_tensor()
           .add_object("a", integer(1))
           .add_object("a.b", integer(2))
           .at("a.b", {unicode("a"), unicode("b")}),
       corrupt, "\"a.b\": its path leads through another value of the metadata"},
      {"a key of a list that is no index",
       with_tensor()
           .add_object("a.0", integer(1))
           .at("a.0", {unicode("a"), integer(0)})
           .add_object("a.b", integer(2))
           .at("a.b", {unicode("a"), unicode("b")}),
       corrupt, "\"a.b\": its path has a key of a list that is no index"},
      {"an index that would fill the memory",
       with_tensor()
           .add_object("a.9", integer(1))
           .at("a.9", {unicode("a"), integer(1'000'000'000)}),
       limit_exceeded, "its path has the index 1000000000"},
      {"a path deeper than the limit",
       with_tensor().add_object(deep, integer(1)).at(deep, keys(21)), limit_exceeded,
       "its path has 21 keys, the limit is 20"},
      {"a value that nests deeper than the limit with its path",
       with_tensor().add_object(deep, "]]]]aaa").at(deep, keys(18)), limit_exceeded,
       "nest deeper than the limit of 20"},
  };
  const OpenOptions options{.limits = {.depth = 20}};
  for (const auto& refusal : refusals) {
    CAPTURE(refusal.what);
    CHECK_FAILS(values_of(refusal.folder, options), refusal.code, refusal.words);
  }
}
