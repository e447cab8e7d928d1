#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

using test::bad_checksums;
using test::data;
using test::flat_tensor;
using test::opened;
using test::read_file;
using test::TemporaryFolder;

constexpr std::size_t count = 8;
constexpr std::size_t length = 3000;

// Says something to another process once. Its end is the same as having said it.
class Pipe {
 public:
  Pipe() { REQUIRE(::pipe2(ends_.data(), O_CLOEXEC) == 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  void say() const { REQUIRE(::write(ends_[1], "x", 1) == 1); }
  void wait() {
    ::close(std::exchange(ends_[1], -1));
    char got = 0;
    static_cast<void>(::read(ends_[0], &got, 1) == 1);
  }

 private:
  std::array<int, 2> ends_{};
};

// That it ended well.
void check_child(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

std::vector<float> values_of(std::size_t tensor) {
  std::vector<float> values(length);
  for (std::size_t i = 0; i < length; ++i)
    values[i] = static_cast<float>(tensor * length + i) + 0.5f;
  return values;
}

std::string name_of(std::size_t tensor) { return "layer." + std::to_string(tensor); }

// "layer.0" ... of float32, and "step", which is written at once. `content` makes that of a layer.
template <class Content>
WritePlan write_layers(const std::filesystem::path& path, const Content& content) {
  CheckpointWriter writer({.archive_name = "model"});
  std::vector<Value> items;
  for (std::size_t i = 0; i < count; ++i) {
    items.push_back(writer.values().string(name_of(i)));
    items.push_back(flat_tensor(writer, content(i)));
  }
  const std::int64_t step = 7;
  items.push_back(writer.values().string("step"));
  items.push_back(
      writer.tensor(writer.add_storage(RecordContent::bytes(std::as_bytes(std::span(&step, 1)))),
                    {.dtype = DType::int64}));
  const Value root = writer.values().dict(items);
  return std::move(writer).write(root, path).value();
}

WritePlan write_reserved(const std::filesystem::path& path) {
  return write_layers(path,
                      [](std::size_t) { return RecordContent::reserved(length * sizeof(float)); });
}

struct Reserved {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "model.pt";
  WritePlan plan = write_reserved(path);
};

CheckpointFill opened_for_filling(const std::filesystem::path& path) {
  Result<CheckpointFill> fill = CheckpointFill::open(path);
  REQUIRE_OK(fill);
  return std::move(*fill);
}

void fill_layer(const CheckpointFill& fill, std::size_t i) {
  const std::vector<float> values = values_of(i);
  REQUIRE_OK(fill.write(name_of(i), std::as_bytes(std::span(values))));
}

void fill_all(const CheckpointFill& fill) {
  for (std::size_t i = 0; i < count; ++i) fill_layer(fill, i);
}

TEST_SUITE("checkpoint fill") {
  TEST_CASE_FIXTURE(Reserved, "a file that is filled and sealed holds what a normal save writes") {
    {
      CheckpointFill fill = opened_for_filling(path);
      for (const std::size_t i : {3u, 0u, 7u, 1u, 2u, 6u, 5u, 4u}) fill_layer(fill, i);
      REQUIRE_OK(fill.seal());
    }
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(values_of(i));
    const WritePlan normal = write_layers(folder.path() / "normal.pt", [&](std::size_t i) {
      return RecordContent::bytes(std::as_bytes(std::span(values[i])));
    });
    // Byte for byte, up to the marks, which stand behind the storages.
    const WrittenStorage& last = normal.storages.back();
    const std::size_t same = static_cast<std::size_t>(last.offset + last.nbytes + 16);
    CHECK(plan.storages.back().offset == last.offset);
    CHECK(read_file(path).substr(0, same) ==
          read_file(folder.path() / "normal.pt").substr(0, same));
    CHECK(bad_checksums(path).empty());
    const Checkpoint read = opened(path);
    REQUIRE(read.info().reserved);
    CHECK(read.info().reserved->is_sealed);
    CHECK(read.info().reserved->storages == count);
    CHECK(read.info().reserved->unwritten.empty());
    CHECK(verify_crc(read).faults.empty());
    CHECK(verify_crc(read).storages_checked == count + 1);
  }

  TEST_CASE("processes that fill at once make the file that one process makes") {
    const TemporaryFolder folder;
    const std::filesystem::path one = folder.path() / "one.pt";
    const std::filesystem::path many = folder.path() / "many.pt";
    write_reserved(one);
    write_reserved(many);
    {
      CheckpointFill fill = opened_for_filling(one);
      fill_all(fill);
      REQUIRE_OK(fill.seal());
    }
    constexpr std::size_t processes = 64;
    std::vector<pid_t> children;
    for (std::size_t k = 0; k < processes; ++k) {
      children.push_back(::fork());
      REQUIRE(children.back() >= 0);
      if (children.back() != 0) continue;
      // Several write the same layer, as replicas do.
      const std::vector<float> values = values_of(k % count);
      Result<CheckpointFill> fill = CheckpointFill::open(many);
      const bool ok =
          fill && fill->write(name_of(k % count), std::as_bytes(std::span(values))).has_value();
      ::_exit(ok ? 0 : 1);
    }
    for (const pid_t child : children) check_child(child);
    CheckpointFill fill = opened_for_filling(many);
    REQUIRE_OK(fill.seal());
    CHECK(read_file(many) == read_file(one));
  }

  TEST_CASE_FIXTURE(Reserved, "a file that is half filled opens and says what is missing") {
    {
      const CheckpointFill fill = opened_for_filling(path);
      for (const std::size_t i : {0u, 2u, 3u, 4u, 6u, 7u}) fill_layer(fill, i);
    }
    const Checkpoint read = opened(path);
    REQUIRE(read.info().reserved);
    CHECK_FALSE(read.info().reserved->is_sealed);
    CHECK(read.info().reserved->unwritten == std::vector<std::uint64_t>{1, 5});
    CHECK(read.get("layer.2").value().as<float>().value()[0] == 6000.5f);
    CHECK(read.get("layer.1").value().as<float>().value()[0] == 0.0f);
  }

  TEST_CASE_FIXTURE(Reserved, "refuses to seal what is not written, and names it") {
    CheckpointFill fill = opened_for_filling(path);
    for (const std::size_t i : {0u, 2u, 3u, 4u, 6u, 7u}) fill_layer(fill, i);
    CHECK_FAILS(fill.seal(), ErrorCode::invalid_argument,
                "2 of 8 reserved storages are not marked as written: data/1, data/5");
    fill_layer(fill, 1);
    fill_layer(fill, 5);
    REQUIRE_OK(fill.seal());
  }

  TEST_CASE_FIXTURE(Reserved, "refuses to seal while somebody else fills") {
    CheckpointFill fill = opened_for_filling(path);
    fill_all(fill);
    {
      const CheckpointFill other = opened_for_filling(path);
      CHECK_FAILS(fill.seal(), ErrorCode::io, "others have the file open for filling");
    }
    REQUIRE_OK(fill.seal());
    CHECK_FAILS(CheckpointFill::open(path), ErrorCode::invalid_argument, "is sealed");
  }

  TEST_CASE_FIXTURE(Reserved, "others may fill after a seal that was stopped, and seal") {
    CheckpointFill stopped = opened_for_filling(path);
    fill_all(stopped);
    const auto while_sealing = [&](std::uint64_t, std::uint64_t) {
      CHECK_FAILS(CheckpointFill::open(path), ErrorCode::io, "another process is sealing the file");
      return false;
    };
    CHECK_FAILS(stopped.seal(while_sealing), ErrorCode::cancelled, "the sealing was stopped");
    {
      const CheckpointFill other = opened_for_filling(path);
      fill_layer(other, 3);
      CHECK_FAILS(stopped.seal(), ErrorCode::io, "others have the file open for filling");
    }
    REQUIRE_OK(stopped.seal());
  }

  TEST_CASE_FIXTURE(
      Reserved, "the forked child of a filler that was killed does not keep others from sealing") {
    Pipe forked;
    Pipe ends;
    const pid_t filler = ::fork();
    REQUIRE(filler >= 0);
    if (filler == 0) {
      const CheckpointFill fill = opened_for_filling(path);
      fill_all(fill);
      if (::fork() == 0) {
        forked.say();
        ends.wait();  // for the end of the test
        ::_exit(0);
      }
      ends.wait();
    }
    forked.wait();
    ::kill(filler, SIGKILL);
    REQUIRE(::waitpid(filler, nullptr, 0) == filler);
    CheckpointFill fill = opened_for_filling(path);
    REQUIRE_OK(fill.seal());
  }

  TEST_CASE_FIXTURE(Reserved, "a forked child that fills keeps others from sealing") {
    Pipe filled;
    Pipe ends;
    std::optional<CheckpointFill> inherited(opened_for_filling(path));
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      fill_all(*inherited);
      filled.say();
      ends.wait();
      const Result<void> late = inherited->mark_written("layer.0");
      ::_exit(late ? 0 : 1);
    }
    filled.wait();
    inherited.reset();
    CheckpointFill fill = opened_for_filling(path);
    CHECK_FAILS(fill.seal(), ErrorCode::io, "others have the file open for filling");
    ends.say();
    check_child(child);
    REQUIRE_OK(fill.seal());
  }

  TEST_CASE_FIXTURE(Reserved, "a forked child cannot fill what was sealed meanwhile") {
    Pipe sealed;
    CheckpointFill fill = opened_for_filling(path);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      sealed.wait();
      const Result<void> late = fill.mark_written("layer.0");
      ::_exit(!late && late.error().message == "is sealed: all that was reserved is written" ? 0
                                                                                             : 1);
    }
    fill_all(fill);
    REQUIRE_OK(fill.seal());
    sealed.say();
    check_child(child);
  }

  TEST_CASE_FIXTURE(Reserved, "through the mapping, marked by whoever wrote it") {
    CheckpointFill fill = opened_for_filling(path);
    for (std::size_t i = 1; i < count; ++i) fill_layer(fill, i);
    const std::vector<float> values = values_of(0);
    const std::span<std::byte> place = fill.writable_bytes("layer.0").value();
    REQUIRE(place.size() == length * sizeof(float));
    std::memcpy(place.data(), values.data(), place.size());
    const auto written = [&] { return fill.storages().value().front().is_written; };
    CHECK_FALSE(written());
    REQUIRE_OK(fill.mark_written("layer.0"));
    CHECK(written());
    REQUIRE_OK(fill.seal());
    CHECK(bad_checksums(path).empty());
  }

  TEST_CASE_FIXTURE(Reserved, "lists the reserved storages with their places") {
    const CheckpointFill fill = opened_for_filling(path);
    fill_layer(fill, 2);
    const std::vector<CheckpointFill::Storage> storages = fill.storages().value();
    REQUIRE(storages.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(storages[i].key == std::to_string(i));
      CHECK(storages[i].offset == plan.storages[i].offset);
      CHECK(storages[i].nbytes == length * sizeof(float));
      CHECK(storages[i].is_written == (i == 2));
    }
  }

  TEST_CASE("without marks, as torch's skip_data leaves a file, holes are what nobody wrote") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    CheckpointWriter writer({.mark_reserved = false});
    const std::vector<float> large(1 << 20, 1);
    std::vector<Value> tensors;
    for (const RecordContent& content :
         {RecordContent::reserved(4 << 20), RecordContent::bytes(std::as_bytes(std::span(large))),
          RecordContent::reserved(4 << 20)})
      tensors.push_back(flat_tensor(writer, content));
    const Value root = writer.values().list(tensors);
    REQUIRE_OK(std::move(writer).write(root, path));
    const Checkpoint read = opened(path);
    CHECK_FALSE(read.info().reserved);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    const bool knows_holes = status.st_blocks * 512 < (8 << 20);
    CHECK(unwritten_storages(read) ==
          (knows_holes ? std::vector<std::size_t>{0, 2} : std::vector<std::size_t>{}));
    CHECK_FAILS(CheckpointFill::open(path), ErrorCode::invalid_argument,
                "has no reserved storages");
  }

  TEST_CASE_FIXTURE(Reserved, "the storages that nobody wrote, by their marks") {
    fill_layer(opened_for_filling(path), 2);
    CHECK(unwritten_storages(opened(path)) == std::vector<std::size_t>{0, 1, 3, 4, 5, 6, 7});
    CHECK(unwritten_storages(opened(data / "no_crc.pt")).empty());
  }

  TEST_CASE_FIXTURE(Reserved, "sealing that was stopped can be done again") {
    {
      CheckpointFill fill = opened_for_filling(path);
      fill_all(fill);
      std::size_t calls = 0;
      CHECK_FAILS(fill.seal([&](std::uint64_t, std::uint64_t) { return ++calls < 3; }),
                  ErrorCode::cancelled, "the sealing was stopped");
    }
    const Checkpoint between = opened(path);
    CHECK_FALSE(between.info().reserved->is_sealed);
    CheckpointFill again = opened_for_filling(path);
    REQUIRE_OK(again.seal());
    CHECK(bad_checksums(path).empty());
  }

  TEST_CASE_FIXTURE(Reserved, "refuses to seal a record without a data descriptor") {
    std::string text = read_file(path);
    const std::string name = "model/data/3";
    const std::size_t local = text.find(name) - 30, entry = text.rfind(name) - 46;
    REQUIRE(text.substr(entry, 4) == "PK\1\2");
    for (const std::size_t flags : {local + 6, entry + 8})
      text[flags] = static_cast<char>(text[flags] & ~8);
    text.replace(local + 14, 12, text, entry + 16, 12);  // CRC and sizes
    folder.write("model.pt", text);
    CheckpointFill fill = opened_for_filling(path);
    fill_all(fill);
    CHECK_FAILS(
        fill.seal(), ErrorCode::unsupported,
        "record \"model/data/3\" has no data descriptor, as in an archive that another tool");
  }

  TEST_CASE("refuses what has nothing to be filled") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    std::filesystem::copy_file(data / "state_dict.pt", path);
    CHECK_FAILS(CheckpointFill::open(path), ErrorCode::invalid_argument,
                "has no reserved storages");
  }

  TEST_CASE("refuses marks that are more than there are records, before it reads them") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
      CheckpointWriter writer;
      writer.add_record(".data/weightmap_reserved", RecordContent::reserved(size));
      REQUIRE_OK(std::move(writer).write(Value(), path));
      const std::string message =
          "record .data/weightmap_reserved has " + std::to_string(size) + " bytes, expected 1 to 7";
      CHECK_FAILS(CheckpointFill::open(path), ErrorCode::corrupt, message);
      CHECK_FAILS(Checkpoint::open(path), ErrorCode::corrupt, message);
    }
  }

  TEST_CASE("views of a part, or in another order, do not write a storage") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    CheckpointWriter writer({.archive_name = "model"});
    const std::array<float, 1> given = {7};
    const std::array<std::int64_t, 1> one = {1}, twelve = {12}, six = {6};
    const std::array<std::int64_t, 2> rows = {3, 4}, turned = {1, 3};
    const auto first = writer.add_storage(RecordContent::bytes(std::as_bytes(std::span(given))));
    const auto storage = writer.add_storage(RecordContent::reserved(48));
    const std::array<Value, 4> tensors = {
        writer.tensor(first, {.sizes = one, .strides = one}),
        writer.tensor(storage, {.sizes = twelve, .strides = one}),
        writer.tensor(storage, {.sizes = six, .strides = one}),
        writer.tensor(storage, {.sizes = rows, .strides = turned})};
    const Value root = writer.values().list(tensors);
    REQUIRE_OK(std::move(writer).write(root, path));
    const CheckpointFill fill = opened_for_filling(path);
    const std::vector<std::byte> bytes(48);
    CHECK_FAILS(fill.write("0", std::span(bytes).first(4)), ErrorCode::invalid_argument,
                "its storage data/0 was not reserved");
    CHECK_FAILS(fill.write("3", bytes), ErrorCode::invalid_argument,
                "is not contiguous; write it through its writable bytes");
    REQUIRE_OK(fill.write("2", std::span(bytes).first(24)));
    CHECK_FALSE(fill.storages()->front().is_written);
    REQUIRE_OK(fill.write("1", bytes));
    CHECK(fill.storages()->front().is_written);
  }

  TEST_CASE_FIXTURE(Reserved, "refuses tensors and bytes that do not fit") {
    CheckpointFill fill = opened_for_filling(path);
    const std::vector<std::byte> few(8);
    CHECK_FAILS(fill.write("layer.0", few), ErrorCode::invalid_argument, "has 12000 bytes, got 8");
    CHECK_FAILS(fill.write("layer.0", std::vector<std::byte>(12001)), ErrorCode::invalid_argument,
                "has 12000 bytes, got 12001");
    CHECK_FAILS(fill.write("step", few), ErrorCode::invalid_argument,
                "its storage data/8 was not reserved");
    CHECK_FAILS(fill.write("layer.9", few), ErrorCode::not_found, "layer.9");
    CHECK_FAILS(fill.mark_written("step"), ErrorCode::invalid_argument, "was not reserved");
    CHECK_FAILS(fill.writable_bytes("step"), ErrorCode::invalid_argument, "was not reserved");
  }
}

}  // namespace
}  // namespace weightmap
