// Checkpoints in memory: the same tensors as of the file, without a copy, from any address.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/services/inspect/surroundings.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::data;
using test::gathered;
using test::read_file;

namespace {

// Content that begins `shift` bytes behind an address that new aligns.
struct Memory {
  explicit Memory(std::string_view content, std::size_t shift = 0)
      : block(std::make_shared<std::vector<std::byte>>(shift + content.size())),
        bytes(std::span(*block).subspan(shift)) {
    std::memcpy(bytes.data(), content.data(), content.size());
  }
  // The memory ends with the last owner: it is forgotten here.
  Result<Checkpoint> open(const OpenOptions& options = {}) && {
    return Checkpoint::open_memory(bytes, std::move(block), options);
  }

  std::shared_ptr<std::vector<std::byte>> block;
  std::span<std::byte> bytes;
};

Checkpoint opened_memory(std::string_view content, std::size_t shift = 0) {
  return Memory(content, shift).open().value();
}

std::string safetensors_file() { return test::safetensors({{"a", "\1\2\3"}, {"b", "\4"}}); }

std::string gguf_file() {
  test::GgufBuilder made;
  made.pair("general.name", test::GgufBuilder::string, made.text("whole"));
  made.tensor("a", {4}, 0, std::string(16, 'x'));
  return made.file();
}

std::vector<std::string> contents() {
  std::vector<std::string> all = {safetensors_file(), gguf_file()};
  for (const char* name :
       {"state_dict.pt", "training.pt", "views.pt", "dtypes.pt", "quantized.pt", "big_endian.pt",
        "torchscript.pt", "no_tensors.pt", "legacy/dict.pt", "legacy/dtypes.pt", "npz/stored.npz"})
    all.push_back(read_file(data / name));
  return all;
}

// Of the file of this content: names, shapes and elements, in this order.
void check_equals_file(const Checkpoint& checkpoint, const std::string& content) {
  const test::TemporaryFolder folder;
  const Checkpoint other = test::opened(folder.write("file", content));
  REQUIRE(checkpoint.tensors().size() == other.tensors().size());
  CHECK(checkpoint.info().format == other.info().format);
  for (std::size_t i = 0; i < other.tensors().size(); ++i) {
    const NamedTensor one = checkpoint.tensors()[i];
    const NamedTensor expected = other.tensors()[i];
    CAPTURE(expected.name);
    CHECK(one.name == expected.name);
    CHECK(one.view.dtype() == expected.view.dtype());
    CHECK(one.file_offset == expected.file_offset);
    CHECK(gathered(checkpoint, one.view) == gathered(other, expected.view));
  }
}

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

}  // namespace

TEST_CASE("each format has the tensors of its file, in the memory itself") {
  for (const std::string& content : contents()) {
    Memory memory(content);
    const std::span<const std::byte> bytes = memory.bytes;
    const Checkpoint checkpoint = std::move(memory).open().value();
    CHECK(checkpoint.mapping().data() == bytes.data());
    CHECK(checkpoint.mapping().size() == content.size());
    check_equals_file(checkpoint, content);
    for (const NamedTensor& tensor : checkpoint.tensors())
      if (!tensor.view.bytes().empty()) CHECK(lies_in(tensor.view.bytes(), bytes));
  }
}

TEST_CASE("memory may begin at any address") {
  for (const std::string& content : contents())
    for (std::size_t shift : {1u, 2u, 4u, 63u})
      check_equals_file(opened_memory(content, shift), content);
}

TEST_CASE("a tensor that its address misaligns is only copied") {
  const std::string content = read_file(data / "state_dict.pt");
  const Checkpoint aligned = opened_memory(content);
  const Checkpoint misaligned = opened_memory(content, 1);
  const std::string name(aligned.tensors()[0].name);
  REQUIRE(aligned.get(name)->view.dtype() == DType::float32);
  REQUIRE_OK(aligned.get(name)->view.as<float>());
  const TensorView view = misaligned.get(name)->view;
  CHECK_FAILS(view.as<float>(), ErrorCode::invalid_argument, "gather() copies it");
  std::vector<std::byte> out(view.nbytes());
  REQUIRE_OK(view.gather(out));
}

TEST_CASE("the owner lives as long as the checkpoint, wherever it is moved") {
  Memory memory(safetensors_file());
  const std::weak_ptr<const void> owner = memory.block;
  Checkpoint opened = std::move(memory).open().value();
  CHECK(owner.use_count() == 1);
  {
    const Checkpoint moved = std::move(opened);
    CHECK(gathered(moved, *moved.find("a")).size() == 3);
    CHECK(owner.use_count() == 1);
  }
  CHECK(owner.expired());
}

TEST_CASE("the owner lives as long as a shared tensor") {
  Memory memory(safetensors_file());
  const std::weak_ptr<const void> owner = memory.block;
  Checkpoint opened = std::move(memory).open().value();
  SharedTensor tensor =
      SharedTensor::get(std::make_shared<const Checkpoint>(std::move(opened)), "b").value();
  CHECK(tensor->bytes()[0] == std::byte{4});
  tensor = SharedTensor();
  CHECK(owner.expired());
}

TEST_CASE("the owner is released after an open that failed") {
  Memory memory("none of ours, however long it is");
  const std::weak_ptr<const void> owner = memory.block;
  CHECK_FAILS(std::move(memory).open(), ErrorCode::not_a_checkpoint, "");
  CHECK(owner.expired());
}

TEST_CASE("memory is opened without an owner") {
  const std::string content = safetensors_file();
  const Checkpoint checkpoint =
      Checkpoint::open_memory(std::as_bytes(std::span(content)), nullptr).value();
  CHECK(checkpoint.contains("a"));
}

TEST_CASE("a checkpoint in memory has no path and is always current") {
  const Checkpoint checkpoint = opened_memory(safetensors_file());
  CHECK(Backing(checkpoint).opened_paths().empty());
  REQUIRE(checkpoint.source_count() == 1);
  CHECK(checkpoint.source(0).path.empty());
  CHECK_FALSE(checkpoint.source(0).is_copy);
  CHECK(checkpoint.source(0).generation == Generation{.size = safetensors_file().size()});
  CHECK(checkpoint.state() == CheckpointState::current);
  CHECK(checkpoint.is_current());
  CHECK(checkpoint.info().file_bytes == safetensors_file().size());
  CHECK(lives_in_memory(checkpoint));
  CHECK(surroundings(checkpoint).files.empty());
}

TEST_CASE("headers and checksums are compared in memory") {
  std::string content = read_file(data / "state_dict.pt");
  const Checkpoint checkpoint = opened_memory(content);
  REQUIRE_OK(verify_headers(checkpoint));
  const CrcReport sums = verify_crc(checkpoint);
  CHECK(sums.faults.empty());
  CHECK(sums.storages_checked == Backing(checkpoint).storage_count());

  content[checkpoint.tensors()[0].file_offset] ^= 1;
  const Checkpoint changed = opened_memory(content);
  REQUIRE(verify_crc(changed).faults.size() == 1);
  CHECK(verify_crc(changed).faults[0].code == ErrorCode::corrupt);
  OpenOptions crc;
  crc.verify = Verify::crc;
  CHECK_FAILS(Memory(content).open(crc), ErrorCode::corrupt, "CRC");
}

TEST_CASE("lend() passes the memory on, and copy_on_write() copies it once") {
  const std::string content = safetensors_file();
  Memory memory(content, 1);
  const std::span<const std::byte> bytes = memory.bytes;
  const Checkpoint checkpoint = std::move(memory).open().value();
  CHECK(Backing(checkpoint).lend(4)->data() == bytes.data());
  const std::span<std::byte> copy = Backing(checkpoint).copy_on_write().value();
  CHECK(std::ranges::equal(copy, bytes));
  CHECK(copy.data() != bytes.data());
  CHECK(Backing(checkpoint).copy_on_write()->data() == copy.data());
  CHECK(Backing(checkpoint).lend(4, CopyOnWrite::on)->data() == copy.data());
  copy.front() = std::byte{0xff};
  CHECK(bytes.front() == static_cast<std::byte>(content.front()));
}

TEST_CASE("copy_on_write can be chosen for memory") {
  OpenOptions on;
  on.copy_on_write = CopyOnWrite::on;
  const Checkpoint checkpoint = Memory(safetensors_file()).open(on).value();
  CHECK(Backing(checkpoint).lend(4)->data() == Backing(checkpoint).copy_on_write()->data());
}

TEST_CASE("a demanded tensor is there, and is remembered") {
  const Checkpoint checkpoint = opened_memory(safetensors_file());
  REQUIRE_OK(checkpoint.demand(*checkpoint.find("b")));
  CHECK(demand_order(checkpoint) == std::vector<std::size_t>{1});
}

TEST_CASE("refuses options that only a file can have") {
  const struct {
    const char* name;
    OpenOptions options;
    const char* words;
  } rows[] = {
      {"writable", {.sharing = Sharing::private_, .writable = true}, "writable"},
      {"locked", {.locked = true}, "locks"},
      {"guard", {.protection = Protection::guard}, "protection=guard"},
      {"reflink", {.protection = Protection::reflink}, "protection=reflink"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    CHECK_FAILS_IN(Memory(safetensors_file()).open(row.options), ErrorCode::invalid_argument,
                   row.words, "memory");
  }
}

TEST_CASE("refuses what is not whole in memory") {
  using enum ErrorCode;
  test::GgufBuilder part;
  part.split(0, 2, 2);
  part.tensor("a", {1}, 24, "a");
  CHECK_FAILS(Checkpoint::open_memory({}, nullptr), not_a_checkpoint, "is empty");
  CHECK_FAILS(Memory(R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})").open(),
              invalid_argument, "opened by its path");
  CHECK_FAILS(Memory(part.file()).open(), invalid_argument, "opened by its path");
  for (const char* compressed : {"rezipped_deflated.pt", "npz/deflated.npz"})
    CHECK_FAILS(Memory(read_file(data / compressed)).open(), unsupported, "compressed");
}

// It is known by its name only.
TEST_CASE("the metadata of a distributed checkpoint in memory is a pickle like any other") {
  const auto opened = Memory(read_file(data / "dcp/default/.metadata")).open().value();
  CHECK(opened.info().format == Format::pickle);
  CHECK(opened.tensors().empty());
}

TEST_CASE("refuses what is done with files alone") {
  Checkpoint checkpoint = opened_memory(safetensors_file());
  CHECK_FAILS(checkpoint.reopen(), ErrorCode::invalid_argument, "opened in memory");
  CHECK_FAILS(checkpoint.writable_bytes(*checkpoint.find("a")), ErrorCode::invalid_argument,
              "not opened writable");
  CHECK_FAILS_IN(residency(checkpoint), ErrorCode::unsupported, "no mapped file", "memory");
  CHECK_FAILS(anonymous_bytes(checkpoint), ErrorCode::unsupported, "no mapped file");
  CHECK_FAILS(Warmer::start(checkpoint), ErrorCode::unsupported, "only files are warmed");
}

TEST_CASE("truncated memory is an error, wherever it ends") {
  for (const std::string& content :
       {safetensors_file(), gguf_file(), read_file(data / "state_dict.pt"),
        read_file(data / "legacy/dict.pt")}) {
    const std::size_t step = std::max<std::size_t>(1, content.size() / 97);
    for (std::size_t length = 1; length < content.size() - 64; length += step) {
      CAPTURE(length);
      CHECK_FALSE(Memory(std::string_view(content).substr(0, length)).open().has_value());
    }
  }
}

// As when a file that is mapped by others is truncated.
TEST_CASE("memory with pages that are not there is an io error") {
  const std::string content = read_file(data / "aligned_4096.pt");
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = (content.size() + page - 1) / page * page;
  void* const at =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  std::memcpy(at, content.data(), content.size());
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(at), content.size());
  {
    const Checkpoint checkpoint = Checkpoint::open_memory(bytes, nullptr).value();
    REQUIRE(::mprotect(at, size, PROT_NONE) == 0);
    CHECK_FAILS(Checkpoint::open_memory(bytes, nullptr), ErrorCode::io, "read memory");
    const NamedTensor tensor = checkpoint.tensors()[0];
    std::vector<std::byte> out(tensor.view.nbytes());
    const Result<void> failed = checkpoint.gather(tensor.view, out);
    CHECK_FAILS(failed, ErrorCode::io, "read memory");
    CHECK(failed.error().file_offset == tensor.file_offset);
    CHECK_FAILS(Backing(checkpoint).copy_on_write(), ErrorCode::io, "read memory");
  }
  ::munmap(at, size);
}
