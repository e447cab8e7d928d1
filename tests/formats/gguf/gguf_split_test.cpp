// Models in several GGUF files, by any one of which they are opened.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/failures.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::TemporaryFolder;
using Gguf = test::GgufBuilder;

namespace {

std::string name_of(int number, int count = 3) {
  return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
}

struct Part {
  std::uint16_t number;  // from 0 on
  std::vector<std::string> tensors;
  std::uint16_t count = 3;
  std::int32_t total = 3;
};

// Each tensor is one byte: the first of its name.
std::string content_of(const Part& part) {
  Gguf made;
  if (part.number == 0) made.pair("general.name", Gguf::string, made.text("whole"));
  made.split(part.number, part.count, part.total);
  for (const std::string& name : part.tensors) made.tensor(name, {1}, 24, name.substr(0, 1));
  return made.file();
}

// A first shard without tensors, as gguf-py makes it with small_first_shard.
struct Set {
  Set() : Set({{0, {}}, {1, {"a", "b"}}, {2, {"c"}}}) {}
  explicit Set(const std::vector<Part>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      folder.write(name_of(static_cast<int>(i) + 1), content_of(parts[i]));
  }
  std::filesystem::path path(int number) const { return folder.path() / name_of(number); }
  Result<Checkpoint> open(int number) const { return Checkpoint::open(path(number)); }
  TemporaryFolder folder;
};

void check_whole(const Result<Checkpoint>& checkpoint, const Set& set) {
  REQUIRE_OK(checkpoint);
  CHECK(checkpoint->info().format == Format::gguf);
  CHECK(checkpoint->info().tensors == 3);
  REQUIRE(checkpoint->source_count() == 3);
  for (int i = 0; i < 3; ++i)
    CHECK(checkpoint->source(static_cast<std::size_t>(i)).path == set.path(i + 1));
  REQUIRE(checkpoint->root().item_count() == 4);
  CHECK(*checkpoint->root().find("general.name")->string() == "whole");
  CHECK(*checkpoint->root().find("split.no")->integer() == 0);
  std::string names;
  for (const NamedTensor& tensor : checkpoint->tensors()) {
    names += tensor.name;
    const auto elements = tensor.as<std::int8_t>().value();
    CHECK(elements[0] == static_cast<std::int8_t>(tensor.name[0]));
  }
  CHECK(names == "abc");
}

}  // namespace

TEST_CASE("a split is opened by any of its files, its folder, and each level of verification") {
  const Set set;
  for (const int number : {1, 2, 3}) check_whole(set.open(number), set);
  check_whole(Checkpoint::open(set.folder.path()), set);
  for (const Verify verify : {Verify::chain, Verify::headers, Verify::crc})
    check_whole(Checkpoint::open(set.path(1), {.verify = verify}), set);
}

TEST_CASE("a split is opened by the list of its files in any order") {
  const Set set;
  const std::vector<std::filesystem::path> backwards{set.path(3), set.path(2), set.path(1)};
  const auto checkpoint = Checkpoint::open_files(backwards);
  REQUIRE_OK(checkpoint);
  CHECK(*checkpoint->root().find("general.name")->string() == "whole");
  CHECK(checkpoint->info().tensors == 3);
}

TEST_CASE("what a split is opened by is opened again") {
  const Set set;
  const auto checkpoint = set.open(2).value();
  CHECK(checkpoint.is_current());
  check_whole(checkpoint.reopen(), set);
  set.folder.write(name_of(3), content_of({2, {"d"}}));
  CHECK_FALSE(checkpoint.is_current());
  const auto again = checkpoint.reopen().value();
  CHECK(again.contains("d"));
}

TEST_CASE("the files of a split are told by any of them") {
  const Set set;
  const std::vector<std::filesystem::path> all{set.path(1), set.path(2), set.path(3)};
  for (const int number : {1, 2, 3}) {
    const auto files = files_of(set.path(number)).value();
    CHECK(files == all);
  }
  const auto single = set.folder.write("single.gguf", Gguf().file());
  const auto files = files_of(single).value();
  CHECK(files == std::vector<std::filesystem::path>{single});
}

TEST_CASE("a file of a split by another name is refused") {
  const Set set;
  for (const char* name : {"model.gguf", "m-00002-of-00003.bin", "m-00001-of-00003.gguf.gguf",
                           "m-00003-of-00003.gguf", "m-00002-of-00004.gguf", "m-2-of-3.gguf"}) {
    const TemporaryFolder folder;
    const auto path = folder.write(name, content_of({1, {"a", "b"}}));
    const auto checkpoint = Checkpoint::open(path);
    CHECK_FAILS(checkpoint, ErrorCode::corrupt,
                "says that it is 2 of 3 files, and is not called \"");
    CHECK_FAILS(checkpoint, ErrorCode::corrupt, "-00002-of-00003.gguf\"");
    CHECK(checkpoint.error().file == path.string());
  }
}

TEST_CASE("a split is not opened by a descriptor") {
  const Set set;
  const int descriptor = ::open(set.path(2).c_str(), O_RDONLY | O_CLOEXEC);
  CHECK_FAILS(Checkpoint::open_descriptor(descriptor), ErrorCode::invalid_argument,
              "says that it is 2 of 3 files; it is opened by its path");
  ::close(descriptor);
}

TEST_CASE("a file of a split that is missing is named") {
  const Set set;
  std::filesystem::remove(set.path(1));
  const auto checkpoint = set.open(3);
  CHECK_FAILS(checkpoint, ErrorCode::io, "No such file or directory; ");
  CHECK_FAILS(checkpoint, ErrorCode::io, "m-00003-of-00003.gguf says that it is one of 3 files");
  CHECK(checkpoint.error().file == set.path(1).string());
  CHECK_FAILS(Checkpoint::open(set.folder.path()), ErrorCode::not_found, "shard 1 is missing");
}

TEST_CASE("a split of another number of tensors than it says") {
  const Set set({{0, {}, 3, 4}, {1, {"a", "b"}, 3, 4}, {2, {"c"}, 3, 4}});
  CHECK_FAILS(set.open(1), ErrorCode::corrupt,
              "the 3 files of a split say that they have 4 tensors, and have 3");
}

TEST_CASE("files of a split in other byte orders are one checkpoint") {
  const Set set;
  Gguf big(true);
  big.split(2, 3, 3).tensor("c", {1}, 24, "c");
  set.folder.write(name_of(3), big.file());
  const auto checkpoint = set.open(1).value();
  CHECK(checkpoint.info().byteorder == "mixed");
}

TEST_CASE("a folder with one GGUF file, with a split, with two models") {
  const TemporaryFolder folder;
  folder.write("any.gguf", Gguf().tensor("w", {1}, 24, "w").file());
  folder.write("README.md", "");
  const auto one = Checkpoint::open(folder.path()).value();
  CHECK(one.contains("w"));
  folder.write("mmproj-any.gguf", Gguf().file());
  CHECK_FAILS(Checkpoint::open(folder.path()), ErrorCode::invalid_argument,
              "is a folder of several checkpoints: \"any.gguf\" and \"mmproj-any.gguf\"");
}
