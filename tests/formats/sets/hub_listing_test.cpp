// Names of models on the hub, and what the hub says of a model.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/formats/sets/hub.hpp"
#include "tests/support/failures.hpp"

using namespace weightmap;
using sets::HubName;

namespace {

constexpr const char* commit = "5c3b7f1f4d1b4f6f8d3d3f2b8d7a6c5e4f3a2b1c";

std::string listing(const std::string& files) {
  return std::string(R"({"id": "org/name", "likes": 1.5, "sha": ")") + commit +
         R"(", "siblings": [)" + files + "]}";
}

std::string small(const std::string& name) {
  return R"({"rfilename": ")" + name + R"(", "size": 3, "blobId": "a1"})";
}

std::string large(const std::string& name) {
  return R"({"rfilename": ")" + name +
         R"(", "size": 700, "blobId": "b2", "lfs": {"sha256": "c3", "size": 700}})";
}

Result<std::vector<std::string>> checkpoint_of(const std::string& files) {
  const sets::HubListing read = sets::read_hub_listing(listing(files)).value();
  return read.checkpoint();
}

}  // namespace

TEST_CASE("a name has a model, and perhaps a revision and a file") {
  const auto parsed = [](std::string_view text) {
    const HubName name = HubName::parse(text).value();
    return std::vector<std::string>{name.model, name.revision, name.file};
  };
  using Parts = std::vector<std::string>;
  CHECK(parsed("org/name") == Parts{"org/name", "main", ""});
  CHECK(parsed("org/name@v1.0") == Parts{"org/name", "v1.0", ""});
  CHECK(parsed("org/name@refs%2Fpr%2F1") == Parts{"org/name", "refs/pr/1", ""});
  CHECK(parsed("org/name/a.gguf") == Parts{"org/name", "main", "a.gguf"});
  CHECK(parsed("org/name@v1/deep/a b.gguf") == Parts{"org/name", "v1", "deep/a b.gguf"});
}

TEST_CASE("other texts are no names") {
  for (const char* text :
       {"", "name", "org/", "/name", "org/na--me", "org/.name", "org/name@", "org/name/",
        "org/name@..", "org/name@%2Fv1", "org/name/../x", "org/name//x", "or g/name", "org@1/name"})
    CHECK_MESSAGE(!HubName::parse(text), text);
}

TEST_CASE("a file is known by the hash of its bytes if it is large, and by git's if not") {
  const sets::HubListing read =
      sets::read_hub_listing(listing(small("config.json") + "," + large("model.safetensors")))
          .value();
  CHECK(read.commit == commit);
  REQUIRE(read.files.size() == 2);
  CHECK(read.find("config.json")->blob == "a1");
  CHECK(read.find("config.json")->size == 3);
  CHECK(read.find("model.safetensors")->blob == "c3");
  CHECK(read.find("model.safetensors")->size == 700);
  CHECK(read.find("none") == nullptr);
}

TEST_CASE("an empty lfs is as none") {
  const sets::HubListing read =
      sets::read_hub_listing(
          listing(R"({"rfilename": "a", "size": 1, "blobId": "a1", "lfs": null})"))
          .value();
  CHECK(read.find("a")->blob == "a1");
}

TEST_CASE("the checkpoint is chosen as in a folder, and not from folders below") {
  const std::string index = small("model.safetensors.index.json");
  CHECK(*checkpoint_of(large("model.safetensors") + "," + large("pytorch_model.bin")) ==
        std::vector<std::string>{"model.safetensors"});
  CHECK(*checkpoint_of(large("model-00001-of-00002.safetensors") + "," + index + "," +
                       large("model-00002-of-00002.safetensors")) ==
        std::vector<std::string>{"model.safetensors.index.json"});
  CHECK(*checkpoint_of(large("b-00002-of-00002.gguf") + "," + large("b-00001-of-00002.gguf")) ==
        std::vector<std::string>{"b-00001-of-00002.gguf", "b-00002-of-00002.gguf"});
  CHECK_FAILS(checkpoint_of(large("onnx/model.safetensors")), ErrorCode::not_a_checkpoint,
              "no checkpoint");
  CHECK_FAILS(checkpoint_of(large("a.gguf") + "," + large("b.gguf")), ErrorCode::invalid_argument,
              "several checkpoints");
}

TEST_CASE("refuses lists that are none, or whose commits, files or hashes lead out of the cache") {
  const struct {
    const char* name;
    std::string text;
    const char* words;
  } rows[] = {
      {"no JSON", "<html>", "is no JSON"},
      {"no commit", R"({"siblings": []})", "no commit"},
      {"a commit that leads out", R"({"sha": "../../x", "siblings": []})", "no commit"},
      {"no files", R"({"sha": "5c3b"})", "no files"},
      {"a file above", listing(small("../x")), "leave a folder"},
      {"an absolute file", listing(small("/etc/x")), "leave a folder"},
      {"a file above a folder", listing(small("a/../../x")), "leave a folder"},
      {"a file without a name", listing(small("")), "leave a folder"},
      {"a hash that leads out", listing(R"({"rfilename": "a", "size": 1, "blobId": "../../x"})"),
       "without its hash"},
      {"no hash", listing(R"({"rfilename": "a", "size": 1})"), "without its hash"},
      {"no size", listing(R"({"rfilename": "a", "blobId": "a1"})"), "or its size"},
      {"a negative size", listing(R"({"rfilename": "a", "blobId": "a1", "size": -1})"),
       "or its size"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    CHECK_FAILS(sets::read_hub_listing(row.text), ErrorCode::corrupt, row.words);
  }
}
