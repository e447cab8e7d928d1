// Checkpoints of several files: sets with an index, folders, lists of files, in all formats.
#include "tests/support/shards.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace std::string_literals;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t large_page = 2097152;

std::string text_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes().data()), view.bytes().size()};
}

// "name=bytes@file, ..." with the last part of the file's path.
std::string listed(const Checkpoint& checkpoint) {
  std::string text;
  for (const NamedTensor tensor : checkpoint.tensors())
    text += (text.empty() ? "" : ", ") + std::string(tensor.name) + "=" + text_of(tensor.view) +
            "@" + checkpoint.source(tensor.source).path.filename().string();
  return text;
}

const std::string one = "model-00001-of-00002.safetensors";
const std::string two = "model-00002-of-00002.safetensors";

struct Set {
  Set() {
    folder.write(one, safetensors({{"b", "bbbb"}, {"a", "aa"}}));
    folder.write(two, safetensors({{"c", "ccc"}}));
  }
  TemporaryFolder folder;
  fs::path index =
      folder.write("model.safetensors.index.json", index_of({{"a", one}, {"b", one}, {"c", two}}));
  fs::path file(const std::string& name) const { return folder.path() / name; }
};

struct OpenSet {
  Set set;
  Checkpoint checkpoint = opened(set.index);
};

struct OfSet {
  Set set;
};

}  // namespace

// Sets with an index.

TEST_CASE_FIXTURE(OpenSet, "an index opens all its shards, as files behind it in one mapping") {
  CHECK(listed(checkpoint) == "b=bbbb@" + one + ", a=aa@" + one + ", c=ccc@" + two);
  const fs::path paths[] = {set.index, set.file(one), set.file(two)};
  REQUIRE(checkpoint.source_count() == 3);
  std::uint64_t file_bytes = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(checkpoint.source(i).path == paths[i]);
    CHECK(checkpoint.source(i).mapping_offset == i * large_page);
    CHECK(checkpoint.source(i).bytes == fs::file_size(paths[i]));
    file_bytes += fs::file_size(paths[i]);
  }
  const CheckpointInfo& info = checkpoint.info();
  CHECK(info.format == Format::safetensors);
  CHECK(info.byteorder == "little");
  CHECK(info.tensors == 3);
  CHECK(info.storages == 3);
  CHECK(info.tensor_bytes == 9);
  CHECK(info.tensors_not_indexed == 0);
  CHECK(info.file_bytes == file_bytes);
  CHECK(info.names_torch_safe_only);
}

TEST_CASE_FIXTURE(OfSet, "tensors that the index does not name are left out and counted") {
  replace(set.file(one), safetensors({{"stale", "ss"}, {"a", "aa"}, {"c", "old"}, {"b", "bbbb"}}));
  const Checkpoint checkpoint = opened(set.index);
  CHECK(listed(checkpoint) == "a=aa@" + one + ", b=bbbb@" + one + ", c=ccc@" + two);
  CHECK(checkpoint.info().tensors_not_indexed == 2);
  CHECK_FALSE(checkpoint.contains("stale"));
  CHECK(Backing(checkpoint).storage_count() == 3);
}

TEST_CASE_FIXTURE(OfSet, "a shard that the index does not name is not opened") {
  replace(set.index, index_of({{"c", two}}));
  fs::remove(set.file(one));
  const Checkpoint checkpoint = opened(set.index);
  CHECK(listed(checkpoint) == "c=ccc@" + two);
  CHECK(checkpoint.source_count() == 2);
}

TEST_CASE_FIXTURE(OfSet, "a shard that is missing is refused with its name and that of the index") {
  fs::remove(set.file(two));
  const auto failed = Checkpoint::open(set.index);
  CHECK_FAILS(failed, ErrorCode::io, "No such file or directory");
  CHECK(failed.error().message.find("; the index " + set.index.string() + " names it") !=
        std::string::npos);
  CHECK(failed.error().file == set.file(two).string());
  CHECK(failed.error().os_error == ENOENT);
}

TEST_CASE_FIXTURE(OfSet, "a shard that is a folder, or damaged, is named") {
  replace(set.file(two), safetensors({{"c", "ccc"}}) + "more");
  CHECK_FAILS_IN(Checkpoint::open(set.index), ErrorCode::corrupt,
                 "the tensors have 3 bytes by the header, and there are 7 behind it",
                 set.file(two).string());
  replace(set.file(two), "");
  CHECK_FAILS_IN(Checkpoint::open(set.index), ErrorCode::not_a_checkpoint, "",
                 set.file(two).string());
  fs::remove(set.file(two));
  fs::create_directory(set.file(two));
  CHECK_FAILS_IN(Checkpoint::open(set.index), ErrorCode::not_a_checkpoint, "",
                 set.file(two).string());
}

TEST_CASE("of several damaged shards the first is named, however many threads parse them") {
  const TemporaryFolder folder;
  Tensors weight_map;
  for (int i = 10; i < 40; ++i) {
    const std::string name = "s" + std::to_string(i);
    const bool is_damaged = i == 17 || i == 18 || i == 38;
    folder.write(name, is_damaged ? "nonsense" : safetensors({{"t" + name, name}}));
    weight_map.emplace_back("t" + name, name);
  }
  const fs::path index = folder.write("x.json", index_of(weight_map));
  for (int i = 0; i < 20; ++i) {
    const auto failed = Checkpoint::open(index);
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().file == (folder.path() / "s17").string());
  }
}

TEST_CASE_FIXTURE(OfSet, "an index is known by its content, whatever its name") {
  const std::string text = test::read_file(set.index);
  for (const char* name : {"x.json", "x", "x.safetensors", "pytorch_model.bin"}) {
    CAPTURE(name);
    const Checkpoint checkpoint = opened(set.folder.write(name, " \n" + text));
    CHECK(checkpoint.info().storages == 3);
  }
}

TEST_CASE_FIXTURE(OfSet, "an index longer than the limit is refused") {
  OpenOptions options{.limits = {.pickle_bytes = fs::file_size(set.index)}};
  CHECK(Checkpoint::open(set.index, options).has_value());
  --options.limits.pickle_bytes;
  CHECK_FAILS(Checkpoint::open(set.index, options), ErrorCode::limit_exceeded,
              "the index of shards of " + std::to_string(fs::file_size(set.index)) +
                  " bytes is longer than the limit of ");
}

TEST_CASE_FIXTURE(OfSet, "the limit of tensors is one for the whole set, of what the index names") {
  replace(set.file(two), safetensors({{"c", "ccc"}, {"stale", "s"}}));
  OpenOptions options{.limits = {.tensors = 3}};
  CHECK(Checkpoint::open(set.index, options).has_value());
  options.limits.tensors = 2;
  CHECK_FAILS(Checkpoint::open(set.index, options), ErrorCode::limit_exceeded,
              "the files have 3 tensors, the limit is 2");
}

TEST_CASE("too few descriptors are an error that says how many are needed") {
  const TemporaryFolder folder;
  Tensors weight_map;
  for (int i = 100; i < 150; ++i) {
    const std::string name = "s" + std::to_string(i);
    folder.write(name, safetensors({{"t" + name, name}}));
    weight_map.emplace_back("t" + name, name);
  }
  const fs::path index = folder.write("x.json", index_of(weight_map));
  CHECK(test::in_child([&index] {
          const rlimit few{30, 30};
          if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
          const auto failed = Checkpoint::open(index);
          const bool says_so =
              !failed && failed.error().os_error == EMFILE &&
              failed.error().message.find("49 more files; allow more open files (ulimit -n)") !=
                  std::string::npos;
          return says_so ? 0 : 1;
        }) == "exit 0");
}

// The layout of download caches, where all files are links to others.

namespace {

struct Cache {
  Cache() {
    fs::create_directories(folder.path() / "blobs");
    fs::create_directories(snapshot);
    folder.write("blobs/1111", safetensors({{"b", "bbbb"}, {"a", "aa"}}));
    folder.write("blobs/2222", safetensors({{"c", "ccc"}}));
    folder.write("blobs/3333", index_of({{"a", one}, {"b", one}, {"c", two}}));
    fs::create_symlink("../../blobs/1111", snapshot / one);
    fs::create_symlink("../../blobs/2222", snapshot / two);
    fs::create_symlink("../../blobs/3333", index);
  }
  TemporaryFolder folder;
  fs::path snapshot = folder.path() / "snapshots" / "x";
  fs::path index = snapshot / "model.safetensors.index.json";
};

}  // namespace

TEST_CASE("shards are looked for beside the link to the index, not beside the index itself") {
  const Cache cache;
  for (const fs::path& path : {cache.index, cache.snapshot}) {
    CAPTURE(path.string());
    const Checkpoint checkpoint = opened(path);
    CHECK(listed(checkpoint).starts_with("b=bbbb@" + one + ", a=aa@" + one + ", c=ccc@"));
    CHECK(checkpoint.source(checkpoint.source_count() - 1).path == cache.snapshot / two);
    CHECK(checkpoint.is_current());
  }
  CHECK_FAILS(Checkpoint::open(cache.folder.path() / "blobs" / "3333"), ErrorCode::io,
              "No such file or directory");
}

TEST_CASE("a link that leads to another file since makes the set another one") {
  const Cache cache;
  const Checkpoint checkpoint = opened(cache.index);
  cache.folder.write("blobs/4444", safetensors({{"c", "new"}}));
  fs::remove(cache.snapshot / two);
  fs::create_symlink("../../blobs/4444", cache.snapshot / two);
  CHECK_FALSE(checkpoint.is_current());
  CHECK(checkpoint.state() == CheckpointState::replaced);
  CHECK(text_of(*checkpoint.find("c")) == "ccc");
  const auto again = checkpoint.reopen();
  REQUIRE_OK(again);
  CHECK(text_of(*again->find("c")) == "new");
}

// Folders.

TEST_CASE_FIXTURE(OfSet, "a folder with a whole set and no index is opened as all its shards") {
  fs::remove(set.index);
  const Checkpoint checkpoint = opened(set.folder.path());
  CHECK(listed(checkpoint) == "b=bbbb@" + one + ", a=aa@" + one + ", c=ccc@" + two);
  REQUIRE(checkpoint.source_count() == 2);
  CHECK(checkpoint.source(0).path == set.file(one));
  CHECK(checkpoint.info().tensors_not_indexed == 0);
  CHECK(checkpoint.root().kind() == Value::Kind::dict);
  CHECK(checkpoint.root().item_count() == 0);
}

TEST_CASE("a folder with one file is opened as this file") {
  const TemporaryFolder folder;
  folder.write("x.safetensors", safetensors({{"a", "aa"}}));
  const Checkpoint single = opened(folder.path());
  CHECK(listed(single) == "a=aa@x.safetensors");
  CHECK(single.source_count() == 1);
  const TemporaryFolder other;
  other.write("pytorch_model.bin", torch_zip({{"a", "aa"}}));
  other.write("optimizer.bin", torch_zip({{"b", "bb"}}));
  const Checkpoint bin = opened(other.path());
  CHECK(listed(bin) == "a=aa@pytorch_model.bin");
  CHECK(bin.info().format == Format::torch_zip);
}

TEST_CASE_FIXTURE(
    OfSet, "what is wrong with a folder names the folder, what is wrong with a file the file") {
  set.folder.write("other.safetensors.index.json", test::read_file(set.index));
  CHECK_FAILS_IN(Checkpoint::open(set.folder.path()), ErrorCode::invalid_argument,
                 "is a folder of several checkpoints", set.folder.path().string());
  fs::remove(set.file("other.safetensors.index.json"));
  fs::remove(set.index);
  fs::remove(set.file(one));
  CHECK_FAILS_IN(Checkpoint::open(set.folder.path()), ErrorCode::not_found, "shard 1 is missing",
                 set.folder.path().string());
  set.folder.write(one, "nonsense");
  const auto damaged = Checkpoint::open(set.folder.path());
  REQUIRE_FALSE(damaged.has_value());
  CHECK(damaged.error().file == set.file(one).string());
}

TEST_CASE_FIXTURE(OfSet, "a folder may be given with a slash behind it, or as a link") {
  const Checkpoint slash = opened(set.folder.path() / "");
  CHECK(slash.tensors().size() == 3);
  CHECK(slash.tensors()[0].file == set.file(one).string());
  const TemporaryFolder other;
  fs::create_directory_symlink(set.folder.path(), other.path() / "link");
  const Checkpoint linked = opened(other.path() / "link");
  CHECK(linked.info().storages == 3);
}

TEST_CASE_FIXTURE(OfSet,
                  "errors and tensors name files as the index was given, sources as they are") {
  const fs::path relative = fs::relative(set.index);
  REQUIRE(relative.is_relative());
  const Checkpoint checkpoint = opened(relative);
  CHECK(checkpoint.tensors()[0].file == (relative.parent_path() / one).string());
  CHECK(checkpoint.source(1).path.is_absolute());
  fs::remove(set.file(one));
  CHECK(Checkpoint::open(relative).error().file == (relative.parent_path() / one).string());
}

// Shards of torch's own format, and of several formats.

TEST_CASE("an index of .bin shards opens them, each with storages of its own") {
  const TemporaryFolder folder;
  folder.write("pytorch_model-00001-of-00002.bin", torch_zip({{"w", "wwww"}, {"x", "xx"}}));
  folder.write("pytorch_model-00002-of-00002.bin", torch_zip({{"y", "yyy"}, {"stale", "s"}}));
  const Checkpoint checkpoint = opened(folder.write(
      "pytorch_model.bin.index.json", index_of({{"w", "pytorch_model-00001-of-00002.bin"},
                                                {"x", "pytorch_model-00001-of-00002.bin"},
                                                {"y", "pytorch_model-00002-of-00002.bin"}})));
  CHECK(listed(checkpoint) ==
        "w=wwww@pytorch_model-00001-of-00002.bin, x=xx@pytorch_model-00001-of-00002.bin, "
        "y=yyy@pytorch_model-00002-of-00002.bin");
  CHECK(checkpoint.info().format == Format::torch_zip);
  CHECK(checkpoint.info().storages == 3);
  CHECK(checkpoint.info().tensors_not_indexed == 1);
  CHECK(checkpoint.get("w")->storage == "0");
  CHECK(checkpoint.get("x")->storage == "1");
  CHECK(checkpoint.get("y")->storage == "0");
  CHECK(checkpoint.get("y")->source == 2);
  CHECK(checkpoint.info().storage_alignment == 64);
  CHECK(verify_headers(checkpoint).has_value());
}

TEST_CASE("checksums of .bin shards are compared, and name the shard that differs") {
  const TemporaryFolder folder;
  const fs::path a = folder.write("a.bin", torch_zip({{"a", "aaaa"}}));
  const fs::path b = folder.write("b.bin", torch_zip({{"b", "bbbb"}}));
  folder.write("c.safetensors", safetensors({{"c", "cc"}}));
  const fs::path index =
      folder.write("x.json", index_of({{"a", "a.bin"}, {"b", "b.bin"}, {"c", "c.safetensors"}}));
  const CrcReport whole = verify_crc(opened(index));
  CHECK(whole.storages_checked == 2);
  CHECK(whole.storages_without_crc == 1);
  CHECK(whole.faults.empty());
  std::string damaged = test::read_file(b);
  const std::size_t at = damaged.find("bbbb");
  REQUIRE(at != std::string::npos);
  damaged[at + 2] = 'X';
  replace(b, damaged);
  const CrcReport report = verify_crc(opened(index));
  CHECK(report.storages_checked == 2);
  REQUIRE(report.faults.size() == 1);
  CHECK(report.faults[0].file == b.string());
  CHECK(report.faults[0].file_offset == at);
  CHECK(report.faults[0].message.find("the storage of tensor \"b\"") != std::string::npos);
  const OpenOptions options{.verify = Verify::crc};
  const auto failed = Checkpoint::open(index, options);
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().code == ErrorCode::corrupt);
  CHECK(failed.error().file == b.string());
}

TEST_CASE("compressed and reserved storages are refused in a shard, which is named") {
  const TemporaryFolder folder;
  const fs::path plain = folder.write("a.safetensors", safetensors({{"a", "aa"}}));
  const fs::path deflated = test::data / "rezipped_deflated.pt";
  const std::vector<fs::path> compressed = {plain, deflated};
  CHECK_FAILS_IN(Checkpoint::open_files(compressed), ErrorCode::unsupported,
                 "has compressed storages, which a shard may not have; open it alone",
                 deflated.string());
  CHECK(Checkpoint::open(deflated).has_value());

  const fs::path hollow = folder.path() / "b.bin";
  CheckpointWriter writer;
  const std::int64_t size = 4, stride = 1;
  const Value tensor =
      writer.tensor(writer.add_storage(RecordContent::reserved(4)),
                    {.dtype = DType::uint8, .sizes = {&size, 1}, .strides = {&stride, 1}});
  const std::vector<Value> items = {writer.values().string("b"), tensor};
  const Value root = writer.ordered_dict(items);
  REQUIRE_OK(std::move(writer).write(root, hollow));
  const fs::path index = folder.write("x.json", index_of({{"a", "a.safetensors"}, {"b", "b.bin"}}));
  CHECK_FAILS_IN(Checkpoint::open(index), ErrorCode::unsupported,
                 "has reserved storages that are not filled in", hollow.string());
}

TEST_CASE("tensors that share a storage in a shard share it in the set") {
  const TemporaryFolder folder;
  const fs::path tied = folder.path() / "a.bin";
  CheckpointWriter writer;
  const std::int64_t size = 4, stride = 1;
  const TensorSpec spec{.dtype = DType::uint8, .sizes = {&size, 1}, .strides = {&stride, 1}};
  const std::size_t storage = writer.add_storage(RecordContent::text("tied"));
  const std::vector<Value> items = {writer.values().string("head"), writer.tensor(storage, spec),
                                    writer.values().string("embed"), writer.tensor(storage, spec)};
  const Value root = writer.ordered_dict(items);
  REQUIRE_OK(std::move(writer).write(root, tied));
  const Checkpoint checkpoint =
      opened(folder.write("x.json", index_of({{"embed", "a.bin"}, {"head", "a.bin"}})));
  CHECK(Backing(checkpoint).storage_count() == 1);
  CHECK(checkpoint.get("head")->storage_index == checkpoint.get("embed")->storage_index);
  CHECK(checkpoint.find("head")->data() == checkpoint.find("embed")->data());
}

// Lists of files.

TEST_CASE_FIXTURE(OfSet, "a list of files gives the tensors of all, in its order") {
  const std::vector<fs::path> files = {set.file(two), set.file(one)};
  const auto checkpoint = Checkpoint::open_files(files).value();
  CHECK(listed(checkpoint) == "c=ccc@" + two + ", b=bbbb@" + one + ", a=aa@" + one);
  REQUIRE(checkpoint.source_count() == 2);
  CHECK(checkpoint.source(0).path == set.file(two));
  CHECK(checkpoint.root().item_count() == 0);
}

TEST_CASE_FIXTURE(OfSet, "a list of one file is opened as this file, or folder, or index") {
  for (const fs::path& path : {set.index, set.folder.path()}) {
    const auto checkpoint = Checkpoint::open_files({&path, 1}).value();
    CHECK(checkpoint.tensors().size() == 3);
  }
  const fs::path single = set.file(two);
  const auto checkpoint = Checkpoint::open_files({&single, 1}).value();
  CHECK(listed(checkpoint) == "c=ccc@" + two);
}

TEST_CASE_FIXTURE(
    OfSet,
    "a name in two files of a list is refused, with the files; one listed twice is named once") {
  const std::vector<fs::path> twice = {set.file(one), set.file(two), set.file(one)};
  const auto failed = Checkpoint::open_files(twice);
  CHECK_FAILS(failed, ErrorCode::corrupt,
              "tensor \"b\" is there twice, in " + set.file(one).string());
  CHECK(failed.error().message.find(" and in ") == std::string::npos);
  set.folder.write("x.bin", torch_zip({{"d", "d"}, {"c", "C"}}));
  const std::vector<fs::path> files = {set.file(one), set.file(two), set.file("x.bin")};
  CHECK_FAILS(Checkpoint::open_files(files), ErrorCode::corrupt,
              "tensor \"c\" is there twice, in " + set.file(two).string() + " and in " +
                  set.file("x.bin").string());
}

TEST_CASE_FIXTURE(OfSet, "a list may hold neither an index nor a folder beside other files") {
  const std::vector<fs::path> with_index = {set.file(one), set.index};
  CHECK_FAILS_IN(Checkpoint::open_files(with_index), ErrorCode::invalid_argument,
                 "is an index of shards, which is opened alone", set.index.string());
  const std::vector<fs::path> with_folder = {set.file(one), set.folder.path()};
  const auto folder = Checkpoint::open_files(with_folder);
  REQUIRE_FALSE(folder.has_value());
  CHECK(folder.error().file == set.folder.path().string());
}

TEST_CASE_FIXTURE(OfSet, "a list of files of several formats is mixed") {
  set.folder.write("x.bin", torch_zip({{"d", "dd"}}));
  const std::vector<fs::path> files = {set.file("x.bin"), set.file(two)};
  const auto checkpoint = Checkpoint::open_files(files).value();
  CHECK(checkpoint.info().format == Format::mixed);
  CHECK(listed(checkpoint) == "d=dd@x.bin, c=ccc@" + two);
  CHECK(checkpoint.info().storage_alignment == 1);
  CHECK(checkpoint.get("d")->file_offset % 64 == 0);
}

TEST_CASE_FIXTURE(OfSet, "a list says of the byte order what holds for any of its files") {
  const std::vector<fs::path> assumed = {set.file(two), test::data / "no_byteorder.pt"};
  const auto little = Checkpoint::open_files(assumed);
  REQUIRE_OK(little);
  CHECK(little->info().byteorder == "little");
  CHECK(little->info().byteorder_assumed);
  const std::vector<fs::path> both = {set.file(two), test::data / "big_endian.pt"};
  const auto mixed = Checkpoint::open_files(both);
  REQUIRE_OK(mixed);
  CHECK(mixed->info().byteorder == "mixed");
  CHECK_FALSE(mixed->info().byteorder_assumed);
  CHECK_FALSE(mixed->tensors()[0].view.is_foreign_byte_order());
  CHECK(mixed->tensors()[1].view.is_foreign_byte_order());
  CHECK(mixed->tensors()[1].source == 1);
}

TEST_CASE_FIXTURE(OfSet,
                  "files of a list may be empty of tensors, or have some that no type fits") {
  set.folder.write("none", safetensors({}));
  set.folder.write("even",
                   framed(R"({"e":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", "123"));
  set.folder.write("odd",
                   framed(R"({"o":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", "123"));
  set.folder.write(
      "six", framed(R"({"s":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[0,3]}})", "123"));
  const std::vector<fs::path> files = {set.file("none"), set.file("six"), set.file("even"),
                                       set.file("odd"), set.file(two)};
  const auto checkpoint = Checkpoint::open_files(files).value();
  CHECK(checkpoint.info().unsupported == std::vector<std::string>{"s", "o"});
  CHECK(checkpoint.tensors().size() == 2);
  CHECK(checkpoint.find("e")->dtype() == DType::float4_e2m1fn_x2);
  CHECK(checkpoint.source_count() == 5);
}

TEST_CASE_FIXTURE(OfSet, "an index may name tensors of a type that is not listed") {
  replace(set.file(one), framed(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                R"("six":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[2,5]}})",
                                "aa123"));
  replace(set.file(two),
          framed(R"({"odd":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", "123"));
  replace(set.index, index_of({{"odd", two}, {"s\\u0069x", one}, {"a", one}}));
  const Checkpoint checkpoint = opened(set.index);
  CHECK(listed(checkpoint) == "a=aa@" + one);
  CHECK(checkpoint.info().unsupported == std::vector<std::string>{"odd", "six"});
  CHECK(checkpoint.info().tensors == 1);
  CHECK(checkpoint.info().tensors_not_indexed == 0);
  CHECK(checkpoint.source_count() == 3);
  CHECK_FALSE(checkpoint.contains("six"));
  // One that lies in the other shard is none of this one.
  replace(set.index, index_of({{"a", one}, {"six", two}}));
  CHECK_FAILS(Checkpoint::open(set.index), ErrorCode::corrupt,
              "the index has tensor \"six\" in \"" + two + "\", which has no such tensor");
}

TEST_CASE_FIXTURE(
    OfSet, "tensors that are not listed have one name each, too, and an index decides about them") {
  const std::string packed = R"({"six":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[0,3]},)"
                             R"("a":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})";
  replace(set.file(one), framed(packed, "123aa"));
  replace(set.file(two), safetensors({{"six", "6"}, {"b", "b"}}));
  replace(set.index, index_of({{"a", one}, {"b", two}}));
  const Checkpoint without = opened(set.index);
  CHECK(without.info().unsupported.empty());
  replace(set.index, index_of({{"six", one}, {"six", one}}));
  CHECK_FAILS(Checkpoint::open(set.index), ErrorCode::corrupt,
              "the index has tensor \"six\" in \"" + one + "\" twice");
  replace(set.index, index_of({{"six", one}, {"six", two}}));
  CHECK_FAILS(Checkpoint::open(set.index), ErrorCode::corrupt,
              "tensor \"six\" is there twice, in different files");
  const std::array files = {set.file(one), set.file(two)};
  CHECK_FAILS(Checkpoint::open_files(files), ErrorCode::corrupt,
              "tensor \"six\" is there twice, in different files");
  replace(set.file(two),
          framed(R"({"six":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[0,3]}})", "456"));
  CHECK_FAILS(Checkpoint::open_files(files), ErrorCode::corrupt,
              "tensor \"six\" is in another file, too");
}

// What becomes of an open set.

TEST_CASE_FIXTURE(OpenSet, "a set is current until one of its files is replaced") {
  CHECK(checkpoint.is_current());
  CHECK(checkpoint.state() == CheckpointState::current);
  for (const std::string& name : {one, two, "model.safetensors.index.json"s}) {
    CAPTURE(name);
    fs::rename(set.file(name), set.file("aside"));
    CHECK_FALSE(checkpoint.is_current());
    CHECK(checkpoint.state() == CheckpointState::replaced);
    fs::rename(set.file("aside"), set.file(name));
    CHECK(checkpoint.is_current());
  }
}

TEST_CASE_FIXTURE(OpenSet, "a set that is opened again is what its index and its shards are now") {
  const std::string before = listed(checkpoint);
  replace(set.file(two), safetensors({{"x", "xx"}, {"c", "CCCCC"}}));
  CHECK_FALSE(checkpoint.is_current());
  const Checkpoint with_shard = checkpoint.reopen().value();
  CHECK(text_of(*with_shard.find("c")) == "CCCCC");
  CHECK(with_shard.info().tensors_not_indexed == 1);
  CHECK(with_shard.is_current());
  set.folder.write("third.safetensors", safetensors({{"d", "dddd"}}));
  replace(set.index, index_of({{"a", one}, {"d", "third.safetensors"}}));
  CHECK_FALSE(with_shard.is_current());
  const Checkpoint again = checkpoint.reopen().value();
  CHECK(listed(again) == "a=aa@" + one + ", d=dddd@third.safetensors");
  CHECK(again.info().tensors_not_indexed == 1);
  CHECK(again.is_current());
  replace(set.index, "{}");
  CHECK_FAILS(checkpoint.reopen(), ErrorCode::not_a_checkpoint, "is JSON without a weight_map");
  CHECK(listed(checkpoint) == before);
}

TEST_CASE("a folder is looked at again when it is opened again") {
  const TemporaryFolder folder;
  folder.write("model.safetensors", safetensors({{"a", "aa"}}));
  const Checkpoint checkpoint = opened(folder.path());
  fs::remove(folder.path() / "model.safetensors");
  folder.write(one, safetensors({{"b", "bb"}}));
  folder.write(two, safetensors({{"c", "cc"}}));
  CHECK_FALSE(checkpoint.is_current());
  const auto again = checkpoint.reopen().value();
  CHECK(listed(again) == "b=bb@" + one + ", c=cc@" + two);
}

TEST_CASE_FIXTURE(OfSet, "a list of files is opened again as this list") {
  const std::vector<fs::path> files = {set.file(two), set.file(one)};
  const auto checkpoint = Checkpoint::open_files(files).value();
  replace(set.file(one), safetensors({{"z", "zz"}}));
  CHECK_FALSE(checkpoint.is_current());
  const auto again = checkpoint.reopen().value();
  CHECK(listed(again) == "c=ccc@" + two + ", z=zz@" + one);
}

TEST_CASE_FIXTURE(OpenSet,
                  "headers of a set are verified again, and a shard that changed is named") {
  CHECK(verify_headers(checkpoint).has_value());
  std::string other = test::read_file(set.file(two));
  other[9] = '}';
  std::ofstream(set.file(two), std::ios::binary) << other;
  const auto failed = verify_headers(checkpoint);
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().file == set.file(two).string());
}

TEST_CASE_FIXTURE(OfSet, "a byte written to a shared set reaches its shard and no other") {
  const std::string first = test::read_file(set.file(one));
  const OpenOptions options{.sharing = Sharing::shared, .writable = true};
  Checkpoint checkpoint = opened(set.index, options);
  const auto bytes = checkpoint.writable_bytes(*checkpoint.find("c")).value();
  bytes[0] = std::byte{'X'};
  CHECK(test::read_file(set.file(two)).ends_with("Xcc"));
  CHECK(test::read_file(set.file(one)) == first);
}

TEST_CASE_FIXTURE(OfSet,
                  "an index is not opened by descriptor, since its shards lie beside a path") {
  const int descriptor = ::open(set.index.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  const auto failed = Checkpoint::open_descriptor(descriptor);
  ::close(descriptor);
  CHECK_FAILS(failed, ErrorCode::invalid_argument,
              "is an index of shards; it is opened by its path, beside which they lie");
}
