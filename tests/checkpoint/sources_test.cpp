// Checkpoints of several files, each of which has one tensor of floats from byte 4096 on.
#include "runtime/checkpoint/sources.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using test::in_child;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t payload = 4096;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A safetensors file whose header is padded up to `payload`.
std::string file_of(const std::string& name, const std::vector<float>& floats) {
  const std::size_t bytes = floats.size() * sizeof(float);
  std::string header = "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" +
                       std::to_string(floats.size()) + "],\"data_offsets\":[0," +
                       std::to_string(bytes) + "]}}";
  const std::uint64_t length = payload - sizeof length;
  header.resize(length, ' ');
  std::string file(payload + bytes, '\0');
  std::memcpy(&file[0], &length, sizeof length);
  std::memcpy(&file[sizeof length], header.data(), length);
  std::memcpy(&file[payload], floats.data(), bytes);
  return file;
}

std::vector<float> counting(std::size_t count, float first) {
  std::vector<float> floats(count);
  for (float& value : floats) value = first++;
  return floats;
}

// 3 MiB and some, so that the second file begins at 4 MiB.
constexpr std::size_t first_count = 3 * mib / sizeof(float);
constexpr std::size_t second_count = 5000;
constexpr std::uint64_t second_base = 4 * mib;

struct TwoFiles {
  TemporaryFolder folder;
  fs::path first = folder.write("a.safetensors", file_of("tensor.0", counting(first_count, 0)));
  fs::path second = folder.write("b.safetensors", file_of("tensor.1", counting(second_count, 7)));

  Result<Checkpoint> try_open(const OpenOptions& options = {}) const {
    const fs::path paths[] = {first, second};
    return Checkpoint::open_files(paths, options);
  }
  Checkpoint open(const OpenOptions& options = {}) const { return try_open(options).value(); }
};

TensorView tensor_of(const Checkpoint& checkpoint, const char* name) {
  const auto view = checkpoint.find(name).value();
  return view;
}

float last_of(const TensorView& view) { return view.as<float>().value().back(); }

struct OpenFiles {
  TwoFiles files;
  Checkpoint checkpoint = files.open();
};

}  // namespace

TEST_CASE_FIXTURE(OpenFiles,
                  "the files of a checkpoint lie in one mapping, each at a multiple of 2 MiB") {
  REQUIRE(checkpoint.source_count() == 2);
  CHECK(checkpoint.source(0).path == files.first);
  CHECK(checkpoint.source(0).bytes == payload + 3 * mib);
  CHECK(checkpoint.source(0).mapping_offset == 0);
  CHECK(checkpoint.source(1).path == files.second);
  CHECK(checkpoint.source(1).bytes == payload + 20000);
  CHECK(checkpoint.source(1).mapping_offset == second_base);
  CHECK(checkpoint.mapping().size() == second_base + payload + 20000);
  CHECK(reinterpret_cast<std::uintptr_t>(checkpoint.mapping().data()) % (2 * mib) == 0);
  CHECK(checkpoint.info().file_bytes == 2 * payload + 3 * mib + 20000);
  CHECK(checkpoint.info().format == Format::safetensors);
}

TEST_CASE_FIXTURE(OpenFiles, "tensors and storages tell their file and the offset in it") {
  const auto first = checkpoint.get("tensor.0");
  const auto second = checkpoint.get("tensor.1");
  REQUIRE_OK(first);
  REQUIRE_OK(second);
  CHECK(first->source == 0);
  CHECK(first->file_offset == payload);
  CHECK(second->source == 1);
  CHECK(second->file_offset == payload);
  CHECK(first->view.as<float>().value().front() == 0);
  CHECK(last_of(first->view) == 786431);
  CHECK(second->view.as<float>().value().front() == 7);
  CHECK(last_of(second->view) == 5006);
  CHECK(second->view.data() == checkpoint.mapping().data() + second_base + payload);
  CHECK(Backing(checkpoint).storage(1).key == "tensor.1");
  CHECK(Backing(checkpoint).storage(1).source == 1);
  CHECK(Backing(checkpoint).storage(1).payload_offset == payload);
}

TEST_CASE("what lies between two files reads as zeros and cannot be written to") {
  const TwoFiles files;
  const OpenOptions options{.sharing = Sharing::private_, .writable = true};
  const Checkpoint checkpoint = files.open(options);
  const auto between = checkpoint.mapping().first(second_base).subspan(payload + 3 * mib);
  CHECK(std::all_of(between.begin(), between.end(),
                    [](std::byte byte) { return byte == std::byte{}; }));
  const std::byte* const gap = checkpoint.mapping().data() + second_base - 1;
  CHECK(in_child([gap] {
          ::signal(SIGSEGV, SIG_DFL);
          *const_cast<volatile std::byte*>(gap) = std::byte{1};
          return 0;
        }) == "signal 11");
}

TEST_CASE("a byte written to a private checkpoint stays in its file's part") {
  const TwoFiles files;
  const OpenOptions options{.sharing = Sharing::private_, .writable = true};
  Checkpoint checkpoint = files.open(options);
  const auto bytes = checkpoint.writable_bytes(tensor_of(checkpoint, "tensor.1")).value();
  bytes[0] = std::byte{0x55};
  CHECK(checkpoint.mapping()[second_base + payload] == std::byte{0x55});
  CHECK(test::read_file(files.second) == file_of("tensor.1", counting(second_count, 7)));
  std::vector<std::byte> copy(20000);
  REQUIRE_OK(Backing(checkpoint).copy_bytes(tensor_of(checkpoint, "tensor.1"), copy));
  CHECK(copy[0] == std::byte{0x55});
}

TEST_CASE_FIXTURE(OpenFiles, "copy_on_write maps all files once more") {
  const auto copies = Backing(checkpoint).copy_on_write().value();
  REQUIRE(copies.size() == checkpoint.mapping().size());
  copies[second_base + payload] = std::byte{0x55};
  CHECK(tensor_of(checkpoint, "tensor.1").as<float>().value().front() == 7);
  CHECK(std::memcmp(copies.data() + payload, checkpoint.mapping().data() + payload, 3 * mib) == 0);
}

TEST_CASE("a file system that knows no shared mappings gets private ones") {
  const TwoFiles files;
  test::with_refusals({test::no_shared_mappings}, [&files] {
    const Checkpoint checkpoint = files.open();
    CHECK(checkpoint.info().sharing_fell_back);
    CHECK(checkpoint.info().sharing == Sharing::private_);
    CHECK(last_of(tensor_of(checkpoint, "tensor.0")) == 786431);
    CHECK(last_of(tensor_of(checkpoint, "tensor.1")) == 5006);
  });
}

TEST_CASE_FIXTURE(OpenFiles,
                  "copies name the file, the tensor and the offset that were truncated") {
  std::vector<std::byte> copy(20000);
  REQUIRE_OK(Backing(checkpoint).copy_bytes(tensor_of(checkpoint, "tensor.1"), copy));
  CHECK(std::memcmp(copy.data(), &file_of("tensor.1", counting(second_count, 7))[payload],
                    copy.size()) == 0);
  fs::resize_file(files.second, payload + 100);
  const auto failed = Backing(checkpoint).copy_bytes(tensor_of(checkpoint, "tensor.1"), copy);
  CHECK_FAILS(failed, ErrorCode::io, "tensor \"tensor.1\": ");
  CHECK(failed.error().file == files.second.string());
  CHECK(failed.error().file_offset == payload + 100);
  std::vector<std::byte> whole(3 * mib);
  CHECK(Backing(checkpoint).copy_bytes(tensor_of(checkpoint, "tensor.0"), whole).has_value());
}

TEST_CASE_FIXTURE(OpenFiles, "the state is that of the file which fares worst") {
  CHECK(checkpoint.state() == CheckpointState::current);
  CHECK(checkpoint.is_current());
  fs::rename(files.second, files.folder.path() / "old");
  CHECK(checkpoint.state() == CheckpointState::replaced);
  CHECK_FALSE(checkpoint.is_current());
  fs::rename(files.folder.path() / "old", files.second);
  CHECK(checkpoint.state() == CheckpointState::current);
  fs::resize_file(files.second, payload);
  CHECK(checkpoint.state() == CheckpointState::modified);
}

TEST_CASE("a file that is missing is named") {
  const TwoFiles files;
  fs::remove(files.second);
  CHECK_FAILS_IN(files.try_open(), ErrorCode::io, "No such file or directory",
                 files.second.string());
}

TEST_CASE("the guard puts zeros in the place of the lost file only") {
  const TwoFiles files;
  const Checkpoint checkpoint = files.open({.protection = Protection::guard});
  CHECK(in_child([&] {
          const TensorView first = tensor_of(checkpoint, "tensor.0");
          const TensorView second = tensor_of(checkpoint, "tensor.1");
          fs::resize_file(files.second, 1);
          std::vector<std::byte> copy(3 * mib);
          const bool zeros = last_of(second) == 0 && second.as<float>().value().front() == 0;
          const bool stays =
              last_of(first) == 786431 && Backing(checkpoint).copy_bytes(first, copy);
          const bool lost = checkpoint.state() == CheckpointState::lost;
          const auto failed = Backing(checkpoint).copy_bytes(second, std::span(copy).first(20000));
          const bool named = !failed && failed.error().file == files.second.string();
          return zeros && stays && lost && named ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("both files are guarded by one place in the table") {
  const TwoFiles files;
  std::vector<Checkpoint> all;
  for (std::size_t i = 0; i < mmap::Guard::capacity; ++i)
    all.push_back(files.open({.protection = Protection::guard}));
  CHECK_FAILS(files.try_open({.protection = Protection::guard}), ErrorCode::limit_exceeded,
              "cannot guard one more mapping");
}

TEST_CASE_FIXTURE(OpenFiles, "warms both files, and no byte between them") {
  Warmer warmer = Warmer::start(checkpoint, {.step_bytes = 2 * mib}).value();
  const auto report = warmer.wait().value();
  CHECK(report.bytes_done == checkpoint.info().file_bytes);
  CHECK(report.steps == 3);
}

TEST_CASE_FIXTURE(OpenFiles, "warms the tensors that are asked for, in whatever file") {
  Warmer warmer = Warmer::start(checkpoint, {.tensors = {1}}).value();
  const auto report = warmer.wait().value();
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t first = payload / page * page;
  CHECK(report.bytes_done == payload + 20000 - first);
}

TEST_CASE_FIXTURE(OpenFiles, "warming a file that was truncated names it") {
  fs::resize_file(files.second, payload);
  Warmer warmer = Warmer::start(checkpoint).value();
  const auto report = warmer.wait();
  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().file == files.second.string());
  CHECK(report.error().file_offset == payload);
}

TEST_CASE_FIXTURE(OpenFiles, "a file behind a warmed one can be left behind") {
  Warmer warmer = Warmer::start(checkpoint, {.follow = true, .drop_behind = true}).value();
  warmer.passed(0);
  warmer.passed(1);
  REQUIRE_OK(warmer.wait());
  CHECK(last_of(tensor_of(checkpoint, "tensor.0")) == 786431);
  CHECK(last_of(tensor_of(checkpoint, "tensor.1")) == 5006);
}

TEST_CASE_FIXTURE(OpenFiles, "demands tensors of both files") {
  REQUIRE_OK(checkpoint.demand(tensor_of(checkpoint, "tensor.1")));
  REQUIRE_OK(checkpoint.demand(tensor_of(checkpoint, "tensor.0")));
  CHECK(demand_order(checkpoint) == std::vector<std::size_t>{1, 0});
  fs::resize_file(files.second, payload + 100);
  CHECK_FAILS_IN(checkpoint.demand(tensor_of(checkpoint, "tensor.1")), ErrorCode::io, "",
                 files.second.string());
}

TEST_CASE_FIXTURE(OpenFiles, "counts what is in memory file by file") {
  const auto copies = Backing(checkpoint).copy_on_write().value();
  copies[second_base + payload] = std::byte{1};
  // Nobody can evict these.
  const TensorView second = tensor_of(checkpoint, "tensor.1");
  REQUIRE(::mlock(second.data(), second.bytes().size()) == 0);
  const auto report = residency(checkpoint).value();
  CHECK(report.file.file_bytes == checkpoint.info().file_bytes);
  CHECK(report.file.anonymous_bytes == os::page_bytes());
  REQUIRE(report.tensors.size() == 2);
  CHECK(report.tensors[0].source == 0);
  CHECK(report.tensors[0].file_offset == payload);
  CHECK(report.tensors[0].extent_bytes == 3 * mib);
  CHECK(report.tensors[0].anonymous_bytes.value_or(0) == 0);
  CHECK(report.tensors[1].source == 1);
  CHECK(report.tensors[1].file_offset == payload);
  CHECK(report.tensors[1].extent_bytes == 20000);
  CHECK(report.tensors[1].cached_bytes == 20000);
  CHECK(report.tensors[1].anonymous_bytes.value_or(1) > 0);
  CHECK(report.storages[1].source == 1);
  CHECK(report.storages[1].cached_bytes == 20000);
}

TEST_CASE_FIXTURE(OpenFiles, "a position leads to its file") {
  const Sources& sources = Checkpoint::Access::state(checkpoint).sources;
  const std::uint64_t first_bytes = payload + 3 * mib;
  CHECK(&sources.at(0) == &sources[0]);
  CHECK(&sources.at(second_base - 1) == &sources[0]);
  CHECK(&sources.at(second_base) == &sources[1]);
  CHECK(sources.contain(0, first_bytes));
  CHECK_FALSE(sources.contain(0, first_bytes + 1));
  CHECK_FALSE(sources.contain(first_bytes + 1, 1));
  CHECK_FALSE(sources.contain(1, ~std::uint64_t{0}));
  CHECK(sources.contain(second_base, payload + 20000));
  CHECK_FALSE(sources.contain(second_base, payload + 20001));
  std::byte byte{};
  CHECK_FAILS(sources.read(second_base + payload + 20000, {&byte, 1}), ErrorCode::corrupt, "");
}
