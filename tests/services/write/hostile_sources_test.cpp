// Sources that lose their bytes while they are written: one error, what was there stays, and
// nothing is left.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::flat_tensor;
using test::opened;
using test::read_file;

constexpr std::size_t length = 50'000;

// A checkpoint "source.pt" of three tensors of 200,000 bytes and a view of every other element of
// the second, and an old file in the place that it is written to.
struct Source {
  test::TemporaryFolder folder;
  fs::path source = folder.path() / "source.pt";
  fs::path target = folder.write("target.pt", std::string_view("the old file"));

  Source() {
    std::vector<float> values(length);
    for (std::size_t i = 0; i < length; ++i) values[i] = static_cast<float>(i + 1);
    CheckpointWriter writer;
    std::vector<Value> tensors;
    for (int i = 0; i < 3; ++i)
      tensors.push_back(
          flat_tensor(writer, RecordContent::bytes(std::as_bytes(std::span(values)))));
    const std::array<std::int64_t, 1> half{length / 2};
    const std::array<std::int64_t, 1> every_other{2};
    tensors.push_back(writer.tensor(1, {.sizes = half, .strides = every_other}));
    const Value root = writer.values().list(tensors);
    REQUIRE_OK(std::move(writer).write(root, source));
  }

  Checkpoint guarded() const { return opened(source, {.protection = Protection::guard}); }

  // Before the first tensor's bytes are read, `happens`.
  Result<WritePlan> write(const Checkpoint& checkpoint, const std::function<void()>& happens,
                          const CheckpointWriterOptions& options = {}) const {
    CheckpointWriter writer(options);
    std::vector<Value> tensors;
    writer.add_storage(RecordContent::produced(4, [&](const RecordContent::Take& take) {
      happens();
      return take(std::as_bytes(std::span("abc")));
    }));
    for (const char* const name : {"0", "1", "2"})
      tensors.push_back(writer.tensor(checkpoint.get(name).value().view).value());
    const Value root = writer.values().list(tensors);
    return std::move(writer).write(root, target);
  }

  void check_untouched() const {
    CHECK(read_file(target) == "the old file");
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
  }
};

TEST_SUITE("hostile sources") {
  TEST_CASE_FIXTURE(Source, "a mapped checkpoint that is truncated while it is written") {
    for (const bool crc32 : {true, false}) {
      CAPTURE(crc32);
      const std::string whole = read_file(source);
      const Checkpoint checkpoint = guarded();
      const auto truncate = [&] { fs::resize_file(source, 250'000); };
      CHECK_FAILS(write(checkpoint, truncate, {.crc32 = crc32}), ErrorCode::io,
                  "the record \"data/1\": the file that was mapped was truncated, or could not be "
                  "read, from byte ");
      check_untouched();
      folder.write("source.pt", whole);
    }
  }

  TEST_CASE_FIXTURE(Source,
                    "one that loses bytes of its last page only, of which no signal tells") {
    const Checkpoint checkpoint = guarded();
    const NamedTensor last = checkpoint.get("2").value();
    const std::uint64_t end = last.file_offset + last.view.nbytes();
    REQUIRE(end % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) > 100);
    const Result<WritePlan> written = write(checkpoint, [&] { fs::resize_file(source, end - 50); });
    CHECK_FAILS(written, ErrorCode::io,
                "the file that was mapped was truncated, or could not be read, from byte " +
                    std::to_string(end - 50));
    check_untouched();
  }

  TEST_CASE_FIXTURE(Source, "elements that do not lie in one piece") {
    const Checkpoint checkpoint = guarded();
    CheckpointWriter writer;
    const Value root = writer.tensor(checkpoint.get("3").value().view).value();
    fs::resize_file(source, 250'000);
    CHECK_FAILS(std::move(writer).write(root, target), ErrorCode::io,
                "the record \"data/0\": the file that was mapped was truncated");
    check_untouched();
  }

  TEST_CASE_FIXTURE(Source, "a record that is deflated") {
    const Checkpoint checkpoint = guarded();
    const std::span<const std::byte> bytes = checkpoint.get("1").value().view.bytes();
    ArchiveWriter archive = ArchiveWriter::create(target).value();
    fs::resize_file(source, 250'000);
    CHECK_FAILS(
        archive.write("part", RecordContent::bytes(bytes), ArchiveWriter::Compression::deflated),
        ErrorCode::io, "the record \"part\": the file that was mapped was truncated");
    check_untouched();
  }

  TEST_CASE_FIXTURE(Source, "a file that is lost after its bytes were written does not matter") {
    const Checkpoint checkpoint = guarded();
    const NamedTensor tensor = checkpoint.get("1").value();
    ArchiveWriter archive = ArchiveWriter::create(target).value();
    REQUIRE_OK(archive.write("part", RecordContent::bytes(tensor.view.bytes())));
    fs::resize_file(source, 100);
    REQUIRE_OK(archive.finish());
  }

  // Unguarded memory, of which the system says so itself.
  TEST_CASE_FIXTURE(Source, "memory that cannot be read is an error where the system reads it") {
    const Checkpoint checkpoint = opened(source);
    const Result<WritePlan> written =
        write(checkpoint, [&] { fs::resize_file(source, 250'000); }, {.crc32 = false});
    CHECK_FAILS(written, ErrorCode::io,
                "cannot read what is to be written to the file: Bad address");
    CHECK(written.error().file == target);
    check_untouched();
  }

  TEST_CASE_FIXTURE(Source, "a record that is read from an archive that is truncated meanwhile") {
    const ArchiveReader archive = ArchiveReader::open(source).value();
    CheckpointWriter writer;
    const Value root =
        flat_tensor(writer, RecordContent::produced(200'000, [&](const RecordContent::Take& take) {
                      fs::resize_file(source, 100'000);
                      std::vector<std::byte> bytes(200'000);
                      const Result<void> ok = archive.read("data/0", bytes);
                      return ok ? take(bytes) : ok;
                    }));
    const Result<WritePlan> written = std::move(writer).write(root, target);
    CHECK_FAILS(written, ErrorCode::io, "the record \"data/0\": the file shrank while it was read");
    CHECK(written.error().file == source);
    check_untouched();
  }
}

}  // namespace
}  // namespace weightmap
