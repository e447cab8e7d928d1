// The index of a set of shards: what of it is read, and what is refused.
#include "runtime/formats/sets/shard_index.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "weightmap/value.hpp"

using namespace weightmap;
using namespace std::string_literals;
using sets::ShardIndex;

namespace {

// An index that was read, or what is wrong with it.
struct Read {
  explicit Read(const std::string& json, const Limits& limits = {})
      : text(json.begin(), json.end()), index({text.data(), text.size()}) {
    const Result<void> result =
        sets::read_shard_index(index, limits, *std::pmr::new_delete_resource());
    is_read = result.has_value();
    if (!is_read) error = result.error();
  }
  // "tensor in file, ...", in the order of the index.
  std::string items() const {
    std::string all;
    for (const ShardIndex::Item& item : index.items)
      all +=
          (all.empty() ? "" : ", ") + std::string(item.tensor) + " in " + index.files.at(item.file);
    return all;
  }

  std::vector<char> text;
  ShardIndex index;
  bool is_read;
  Error error;
};

// `marked` is an index with a ^ before the byte that is to be blamed; without one no byte is.
void check_refused(std::string marked, const std::string& message,
                   ErrorCode code = ErrorCode::corrupt) {
  std::uint64_t blamed = Error::no_offset;
  if (const std::size_t mark = marked.find('^'); mark != std::string::npos) {
    blamed = mark;
    marked.erase(mark, 1);
  }
  CAPTURE(marked);
  const Read read(marked);
  REQUIRE_FALSE(read.is_read);
  CHECK(read.error.code == code);
  CHECK(read.error.message == message);
  CHECK(read.error.file_offset == blamed);
}

}  // namespace

TEST_CASE("reads which file has which tensor, in the order of the index") {
  const Read read(R"({"metadata": {"total_size": 12}, "weight_map": {
    "z.weight": "model-00002-of-00002.safetensors",
    "a.weight": "model-00001-of-00002.safetensors",
    "b.bias": "model-00002-of-00002.safetensors"
  }})");
  REQUIRE(read.is_read);
  CHECK(read.items() ==
        "z.weight in model-00002-of-00002.safetensors, a.weight in "
        "model-00001-of-00002.safetensors, b.bias in model-00002-of-00002.safetensors");
}

TEST_CASE("each file is there once, sorted by its name") {
  const Read read(
      R"({"weight_map":{"1":"c","2":"a","3":"c","4":"d/x","5":"b","6":"a","7":"B","8":"d/e/f"}})");
  REQUIRE(read.is_read);
  CHECK(read.index.files == std::vector<std::string>{"B", "a", "b", "c", "d/e/f", "d/x"});
  CHECK(read.items() == "1 in c, 2 in a, 3 in c, 4 in d/x, 5 in b, 6 in a, 7 in B, 8 in d/e/f");
}

TEST_CASE("metadata are kept as a tree and none of it is believed") {
  const Read read(
      R"({"weight_map":{"a":"x"},"metadata":{"total_size":1e99,"note":["\u00e9",null,-1]}})");
  REQUIRE(read.is_read);
  const Value metadata(read.index.metadata.get(), read.index.metadata->root());
  CHECK(metadata.item_count() == 2);
  CHECK(metadata.find("total_size")->real() == 1e99);
  const Value note = metadata.find("note").value();
  REQUIRE(note.size() == 3);
  CHECK(note[0].string() == "\xc3\xa9");
  CHECK(note[1].is_none());
  CHECK(note[2].integer() == -1);
}

TEST_CASE("an index without metadata, or with some that are no object, has empty ones") {
  for (const char* text :
       {R"({"weight_map":{"a":"x"}})", R"({"weight_map":{"a":"x"},"metadata":{}})",
        R"({"metadata":null,"weight_map":{"a":"x"}})", R"({"metadata":[1],"weight_map":{"a":"x"}})",
        R"({"metadata":"a","weight_map":{"a":"x"}})"}) {
    CAPTURE(text);
    const Read read(text);
    REQUIRE(read.is_read);
    const Value metadata(read.index.metadata.get(), read.index.metadata->root());
    CHECK(metadata.kind() == Value::Kind::dict);
    CHECK(metadata.item_count() == 0);
  }
}

TEST_CASE("names with escapes are kept, of tensors and of files, however many are in a row") {
  const Read read(R"({"metadata":{"\u006b":"\u0076"},"weight_map":{
    "\u0061":"\u0078", "\u0062":"\u0079", "\u0063":"x",
    "a.tensor.that.is.longer.than.a.short.text.0\n":"a.file.that.is.longer.than.a.short.text.\u0030",
    "a.tensor.that.is.longer.than.a.short.text.1\n":"a.file.that.is.longer.than.a.short.text.\u0031",
    "plain":"a.file.that.is.longer.than.a.short.text.0",
    "\n\n":"\u0079"}, "other\n":["\n","\t"]})");
  REQUIRE(read.is_read);
  CHECK(read.index.files == std::vector<std::string>{"a.file.that.is.longer.than.a.short.text.0",
                                                     "a.file.that.is.longer.than.a.short.text.1",
                                                     "x", "y"});
  CHECK(
      read.items() ==
      "a in x, b in y, c in x, "
      "a.tensor.that.is.longer.than.a.short.text.0\n in a.file.that.is.longer.than.a.short.text.0, "
      "a.tensor.that.is.longer.than.a.short.text.1\n in a.file.that.is.longer.than.a.short.text.1, "
      "plain in a.file.that.is.longer.than.a.short.text.0, \n\n in y");
  const Value metadata(read.index.metadata.get(), read.index.metadata->root());
  CHECK(metadata.find("k")->string() == "v");
}

TEST_CASE("takes as many files as the limit and not one more") {
  std::string text = R"({"weight_map":{)";
  for (int i = 0; i < 65536; ++i)
    text += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":\"f" + std::to_string(i) + '"';
  const Read all(text + R"(,"again":"f0"}})");
  REQUIRE(all.is_read);
  CHECK(all.index.files.size() == 65536);
  check_refused(text + R"(,"again":"f0","more":^"f65536"}})",
                "the index of shards names more than 65536 files, which is the limit",
                ErrorCode::limit_exceeded);
}

TEST_CASE("takes names of files that lie beside the index or in folders there") {
  for (const char* file : {"x", "a b", "model.safetensors", "..x", "x..", "...", ".x", "a/b",
                           "a/.b/c", "a/...", "\xc3\xa9", "~", "-", "$HOME", "%2e%2e", "*"}) {
    CAPTURE(file);
    const Read read(R"({"weight_map":{"a":")" + std::string(file) + "\"}}");
    REQUIRE(read.is_read);
    CHECK(read.index.files == std::vector<std::string>{file});
  }
}

TEST_CASE("an index with any bit changed is refused, or its files lie beside it") {
  const std::string text = R"({"metadata":{"n":1},"weight_map":{"a":"x.y/z","b":"x.y/w"}})";
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    CAPTURE(bit);
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const Read read(changed);
    if (!read.is_read) {
      CHECK(read.error.message.find("index of shards") != std::string::npos);
      continue;
    }
    CHECK(read.index.items.size() <= 2);
    for (const std::string& file : read.index.files) {
      CHECK(file.find("..") == std::string::npos);
      CHECK(file.front() != '/');
      CHECK(file.find('\\') == std::string::npos);
    }
  }
}

TEST_CASE("what is passed over costs no more memory than the limit") {
  const Limits limits{.base_memory = 1 << 14};
  std::string many = "0";
  for (int i = 0; i < 10000; ++i) many += ",0";
  const std::string text = R"({"weight_map":{"a":"x"},"metadata":[)" + many + "]}";
  CHECK(Read(text).is_read);
  const Read read(text, limits);
  REQUIRE_FALSE(read.is_read);
  CHECK(read.error.code == ErrorCode::limit_exceeded);
}
