// Every public way to write, in a process whose files may have few bytes (`ulimit -f`): each ends
// with an error of the system, and none by SIGXFSZ.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/safetensors_writer.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t floats = 16384;

Result<WritePlan> save(const fs::path& path, RecordContent content) {
  CheckpointWriter writer;
  const std::array items{writer.values().string("w"),
                         test::flat_tensor(writer, std::move(content))};
  return std::move(writer).write(writer.values().dict(items), path);
}

struct Way {
  const char* name;
  std::function<Result<void>()> write;
};

template <class T>
Result<void> only_error(Result<T> result) {
  if (!result) return tl::unexpected<Error>(std::move(result).error());
  return {};
}

struct Files {
  test::TemporaryFolder folder;
  fs::path file = folder.path() / "model.pt";
  fs::path reserved = folder.path() / "reserved.pt";
  fs::path filled = folder.path() / "filled.pt";  // to be sealed
  fs::path made = folder.path() / "made";
  std::string bytes = std::string(4 * floats, 'x');

  Files() {
    REQUIRE_OK(save(file, RecordContent::text(bytes)));
    for (const fs::path& path : {reserved, filled})
      REQUIRE_OK(save(path, RecordContent::reserved(4 * floats)));
    const CheckpointFill fill = CheckpointFill::open(filled).value();
    REQUIRE_OK(fill.write("w", std::as_bytes(std::span(bytes))));
  }

  std::vector<Way> ways() {
    const auto elements = [this] { return std::as_bytes(std::span(bytes)); };
    const auto filler = [](const fs::path& path) { return CheckpointFill::open(path).value(); };
    const auto tensors = [] {
      return std::vector<SafetensorsTensor>{{.name = "w",
                                             .dtype = DType::float32,
                                             .shape = {floats},
                                             .content = RecordContent::zeros(4 * floats)}};
    };
    ConvertOptions as_pt;
    as_pt.format = WrittenFormat::pt;
    return {
        {"save", [this] { return only_error(save(made, RecordContent::text(bytes))); }},
        {"empty", [this] { return only_error(save(made, RecordContent::reserved(4 * floats))); }},
        {"safetensors", [=, this] { return only_error(write_safetensors(tensors(), {}, made)); }},
        {"convert", [=, this] { return only_error(convert(file, made, as_pt)); }},
        {"convert a legacy stream",
         [=, this] { return only_error(convert(test::data / "legacy" / "dict.pt", made, as_pt)); }},
        {"an archive",
         [this] {
           Result<ArchiveWriter> archive = ArchiveWriter::create(made, {});
           Result<void> written = only_error(archive->write("a", RecordContent::text(bytes)));
           return written ? only_error(archive->finish()) : written;
         }},
        {"publish a copy", [this] { return only_error(publish(file, made, {.copy = true})); }},
        {"stage", [this] { return only_error(stage(file)); }},
        {"stage with a name",
         [this] {
           StageOptions options;
           options.name = "weightmap-limits-" + std::to_string(::getpid());
           return only_error(stage(file, options));
         }},
        {"fill", [=, this] { return filler(reserved).write("w", elements()); }},
        {"fill through the mapping",
         [=, this] { return only_error(filler(reserved).writable_bytes("w")); }},
        {"mark", [=, this] { return filler(reserved).mark_written("w"); }},
        {"seal", [=, this] { return filler(filled).seal(); }},
        {"an order",
         [this] {
           const std::vector<std::size_t> all{0};
           return save_tensor_order(Checkpoint::open(file).value(), all, made);
         }},
        {"a new file, resized", [this] { return NewFile::create(made)->resize(1000); }},
        {"a new file, reserved", [this] { return NewFile::create(made)->reserve(1000); }},
        {"a new file, skipped", [this] { return NewFile::create(made)->skip(1000); }},
        {"a new file, written at an offset that overflows",
         [=, this] { return NewFile::create(made)->write_at(~std::uint64_t{0}, elements()); }},
    };
  }
};

TEST_CASE_FIXTURE(Files, "beyond RLIMIT_FSIZE every way to write is an error, and no signal") {
  for (const Way& way : ways()) {
    CAPTURE(std::string(way.name));
    CHECK(test::in_child([&] {
            const rlimit limit{1, 1};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            const Result<void> refused = way.write();
            if (refused) return 1;
            return refused.error().os_error == EFBIG ? 0 : 2;
          }) == "exit 0");
    CHECK_FALSE(fs::exists(made));
  }
}

}  // namespace
}  // namespace weightmap
