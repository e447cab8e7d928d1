#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/convert.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

using test::data;
using test::flat_tensor;
using test::opened;
using test::read_file;
using test::TemporaryFolder;

std::vector<std::string> record_names(const fs::path& path) {
  const ArchiveReader archive = ArchiveReader::open(path).value();
  std::vector<std::string> names;
  for (const ArchiveReader::RecordInfo& record : archive.records()) names.emplace_back(record.name);
  return names;
}

bool has_record(const fs::path& path, std::string_view name) {
  return ArchiveReader::open(path).value().has(name);
}

std::uint32_t first_crc(const fs::path& path) {
  const Checkpoint checkpoint = opened(path);
  return Backing(checkpoint).storage(0).crc32;
}

// Names, types, shapes and values of all tensors.
std::vector<std::string> contents(const fs::path& path) {
  const Checkpoint checkpoint = opened(path);
  std::vector<std::string> all;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    std::string text(tensor.name);
    text += std::string(" ") + std::string(to_string(tensor.view.dtype()));
    for (const std::int64_t size : tensor.view.shape()) text += " " + std::to_string(size);
    std::string values(tensor.view.nbytes(), '\0');
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (checkpoint.gather(tensor.view, bytes)) text += " " + values;
    all.push_back(text);
  }
  return all;
}

// A checkpoint {"a": .., "b": .., "c": ..} of float32 storages of so many elements, all of them
// their own index.
fs::path three_tensors(const TemporaryFolder& folder, std::size_t elements) {
  CheckpointWriter writer;
  std::vector<float> floats(elements);
  std::iota(floats.begin(), floats.end(), 0.0F);
  std::vector<Value> items;
  for (const char* name : {"a", "b", "c"}) {
    items.push_back(writer.values().string(name));
    items.push_back(flat_tensor(writer, RecordContent::bytes(std::as_bytes(std::span(floats)))));
  }
  const Value root = writer.values().dict(items);
  const fs::path path = folder.path() / "three.pt";
  REQUIRE_OK(std::move(writer).write(root, path));
  return path;
}

// An archive of torch.export with the weights a, b and c, each of two floats.
fs::path exported(const TemporaryFolder& folder) {
  const fs::path path = folder.path() / "three.pt2";
  ArchiveWriter archive = ArchiveWriter::create(path, {}).value();
  const auto write = [&](const std::string& name, std::string_view text) {
    REQUIRE_OK(archive.write(name, RecordContent::text(text)));
  };
  write("archive_format", "pt2");
  std::string config;
  for (const char* name : {"a", "b", "c"}) {
    const std::string record = "weight_" + std::to_string(name[0] - 'a');
    write("data/weights/" + record, std::string(8, name[0]));
    config += (config.empty() ? "" : ",") + ("\"" + std::string(name)) + R"(":{"path_name":")" +
              record +
              R"(","is_param":true,"use_pickle":false,"tensor_meta":{"dtype":7,)"
              R"("sizes":[{"as_int":2}],"requires_grad":false,)"
              R"("device":{"type":"cpu","index":null},"strides":[{"as_int":1}],)"
              R"("storage_offset":{"as_int":0},"layout":7}})";
  }
  write("data/weights/model_weights_config.json", R"({"config":{)" + config + "}}");
  REQUIRE_OK(archive.finish());
  return path;
}

struct Copying {
  TemporaryFolder folder;
  fs::path copy = folder.path() / "copy.pt";
};

TEST_SUITE("convert") {
  TEST_CASE_FIXTURE(Copying, "a file of torch.save is copied byte for byte") {
    // What is not opened; what another tool zipped, whose layout is not torch's; TorchScript, which
    // may come in another order; and one without a byteorder, which gets one.
    const std::set<std::string> others{"torchscript.pt", "scripted.pt", "rezipped_deflated.pt",
                                       "rezipped_stored.pt", "no_byteorder.pt"};
    std::size_t compared = 0;
    for (const auto& entry : fs::directory_iterator(data)) {
      const std::string name = entry.path().filename();
      if (entry.path().extension() != ".pt" || others.contains(name)) continue;
      CAPTURE(name);
      copy = folder.path() / name;
      REQUIRE_OK(convert(entry.path(), copy));
      CHECK(read_file(copy) == read_file(entry.path()));
      ++compared;
    }
    CHECK(compared == 41);
  }

  TEST_CASE_FIXTURE(Copying, "what differs for another reason has the same tensors") {
    REQUIRE_OK(convert(data / "no_byteorder.pt", copy));
    CHECK(contents(copy) == contents(data / "no_byteorder.pt"));
    CHECK(has_record(copy, "byteorder"));
    REQUIRE_OK(convert(data / "rezipped_stored.pt", copy));
    CHECK(contents(copy) == contents(data / "state_dict.pt"));
    const Checkpoint read = opened(copy);
    CHECK(read.stats().local_headers_read == 1);
  }

  TEST_CASE_FIXTURE(Copying, "alignments, and back again to the same bytes") {
    const fs::path path = three_tensors(folder, (std::size_t{2} << 20) / 4 + 3);
    for (const std::uint64_t alignment : {4096u, 32768u, 1u << 20, 2u << 20}) {
      CAPTURE(alignment);
      const ConvertReport report = convert(path, copy, {.alignment = alignment}).value();
      CHECK(report.alignment == alignment);
      CHECK(report.storages == 3);
      CHECK(report.new_bytes == fs::file_size(copy));
      const Checkpoint read = opened(copy);
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(Backing(read).storage(i).payload_offset % alignment == 0);
      CHECK(has_record(copy, ".format_version") == (alignment <= 65504));
      CHECK(contents(copy) == contents(path));
      CHECK(verify_crc(read).faults.empty());
      // The same again, which is found by itself.
      REQUIRE_OK(convert(copy, folder.path() / "same.pt"));
      CHECK(read_file(folder.path() / "same.pt") == read_file(copy));
    }
    REQUIRE_OK(convert(path, copy, {.alignment = 4096}));
    REQUIRE_OK(convert(copy, copy, {.alignment = 64}));
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE_FIXTURE(Copying, "an alignment that no record said before is said") {
    REQUIRE_OK(convert(data / "old_order.pt", copy, {.alignment = 256}));
    const Checkpoint read = opened(copy);
    CHECK(read.info().storage_alignment == 256);
    CHECK(contents(copy) == contents(data / "old_order.pt"));
  }

  TEST_CASE_FIXTURE(Copying, "an alignment that cannot be is refused") {
    CHECK_FAILS(convert(data / "views.pt", copy, {.alignment = 0}), ErrorCode::invalid_argument,
                "alignment of 0");
    CHECK_FAILS(convert(data / "views.pt", copy, {.alignment = 100000}),
                ErrorCode::invalid_argument, "it must be a power of two");
    CHECK(fs::is_empty(folder.path()));
  }

  TEST_CASE_FIXTURE(Copying, "storages in the order of use") {
    const fs::path path = three_tensors(folder, 4);
    REQUIRE_OK(convert(path, copy, {.order = {"c", "a", "c"}}));
    const std::vector<std::string> names{
        "data.pkl", ".storage_alignment",    "byteorder", "data/2", "data/0", "data/1",
        "version",  ".data/serialization_id"};
    CHECK(record_names(copy) == names);
    CHECK(contents(copy) == contents(path));
    REQUIRE_OK(convert(copy, copy, {.order = {"a", "b", "c"}}));
    CHECK(record_names(copy)[3] == "data/0");
  }

  TEST_CASE_FIXTURE(Copying, "the order that the file has keeps .format_version") {
    const fs::path path = three_tensors(folder, 4);
    REQUIRE_OK(convert(path, copy, {.order = {"a", "b"}}));
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE_FIXTURE(Copying, "an order with a tensor that there is not is refused") {
    CHECK_FAILS(convert(data / "views.pt", copy, {.order = {"wieght"}}), ErrorCode::not_found,
                "wieght");
    CHECK(fs::is_empty(folder.path()));
  }

  TEST_CASE_FIXTURE(Copying, "CRCs are left out, and computed again") {
    const fs::path path = three_tensors(folder, 100);
    REQUIRE_OK(convert(path, copy, {.crc32 = false}));
    CHECK(first_crc(copy) == 0);
    REQUIRE_OK(convert(copy, folder.path() / "kept.pt"));
    CHECK(first_crc(folder.path() / "kept.pt") == 0);
    REQUIRE_OK(convert(copy, copy, {.crc32 = true}));
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE_FIXTURE(Copying, "a legacy stream becomes an archive with the same tensors") {
    for (const char* name : {"dict.pt", "dtypes.pt", "module.pt"}) {
      CAPTURE(name);
      REQUIRE_OK(convert(data / "legacy" / name, copy));
      CHECK(contents(copy) == contents(data / "legacy" / name));
      OpenOptions options;
      options.verify = Verify::crc;
      const Checkpoint made = opened(copy, options);
      CHECK(made.info().format == Format::torch_zip);
      CHECK(made.stats().strategy == OffsetStrategy::calculated);
      CHECK(Backing(made).storage(0).key == "0");
    }
    REQUIRE_OK(convert(copy, folder.path() / "again.pt"));
    CHECK(read_file(folder.path() / "again.pt") == read_file(copy));
    CHECK_FAILS(convert(data / "legacy" / "dict.pt", copy, {.order = {"w"}}),
                ErrorCode::unsupported, "convert it first");
  }

  TEST_CASE_FIXTURE(Copying, "compressed storages are stored again") {
    REQUIRE_OK(convert(data / "rezipped_deflated.pt", copy));
    const Checkpoint made = opened(copy);
    CHECK(made.stats().storages_copied == 0);
    CHECK(contents(copy) == contents(data / "state_dict.pt"));
  }

  TEST_CASE_FIXTURE(Copying,
                    "the old file may be the new one, and stays whole for who has it mapped") {
    const fs::path path = three_tensors(folder, 100000);
    const Checkpoint mapped = opened(path);
    REQUIRE_OK(convert(path, path, {.alignment = 4096}));
    CHECK(mapped.state() == CheckpointState::replaced);
    CHECK(verify_crc(mapped).faults.empty());
    const Checkpoint read = opened(path);
    CHECK(read.info().storage_alignment == 4096);
  }

  TEST_CASE_FIXTURE(Copying, "damage is found and does not get a new CRC-32") {
    const fs::path path = three_tensors(folder, 1000);
    const std::uint64_t place =
        ArchiveReader::open(path).value().payload_offset("data/1").value() + 12;
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(place))
        .put('x');
    CHECK_FAILS(convert(path, copy), ErrorCode::corrupt, "has CRC-32");
    CHECK_FAILS(convert(path, copy, {.crc32 = false}), ErrorCode::corrupt, "data/1");
    CHECK_FALSE(fs::exists(copy));
  }

  TEST_CASE_FIXTURE(Copying, "a file that is written to, or cut, meanwhile is an error") {
    const fs::path path = three_tensors(folder, std::size_t{4} << 20);
    ConvertOptions options;
    options.progress = [&](std::uint64_t, std::uint64_t) {
      std::ofstream(path, std::ios::app | std::ios::binary).put('x');
      return true;
    };
    CHECK_FAILS(convert(path, copy, options), ErrorCode::io, "was written to while it was copied");
    REQUIRE_OK(convert(three_tensors(folder, std::size_t{4} << 20), path));
    options.progress = [&](std::uint64_t, std::uint64_t) {
      fs::resize_file(path, 4096);
      return true;
    };
    CHECK_FAILS(convert(path, copy, options), ErrorCode::io, "");
    CHECK_FALSE(fs::exists(copy));
  }

  TEST_CASE_FIXTURE(Copying, "progress counts up to all bytes, and stops") {
    const fs::path path = three_tensors(folder, std::size_t{2} << 20);
    std::uint64_t last = 0;
    ConvertOptions options;
    options.progress = [&](std::uint64_t done, std::uint64_t all) {
      CHECK(done <= all);
      last = done;
      return true;
    };
    const ConvertReport report = convert(path, copy, options).value();
    CHECK(last == report.new_bytes);
    options.progress = [](std::uint64_t, std::uint64_t) { return false; };
    CHECK_FAILS(convert(path, folder.path() / "no.pt", options), ErrorCode::cancelled, "stopped");
    CHECK_FALSE(fs::exists(folder.path() / "no.pt"));
  }

  TEST_CASE_FIXTURE(Copying, "a file with reserved storages is refused until it is sealed") {
    const fs::path path = folder.path() / "model.pt";
    CheckpointWriter writer;
    const Value root = flat_tensor(writer, RecordContent::reserved(12));
    REQUIRE_OK(std::move(writer).write(root, path));
    CHECK_FAILS(convert(path, copy), ErrorCode::unsupported, "is not sealed");
    CHECK_FALSE(fs::exists(copy));
  }

  TEST_CASE_FIXTURE(Copying, "TorchScript archives keep all their records") {
    for (const char* name : {"torchscript.pt", "scripted.pt"}) {
      REQUIRE_OK(convert(data / name, copy));
      CHECK(contents(copy) == contents(data / name));
      CHECK(has_record(copy, "constants.pkl"));
      CHECK(has_record(copy, "code/__torch__.py") == has_record(data / name, "code/__torch__.py"));
    }
  }

  TEST_CASE_FIXTURE(Copying,
                    "the storages of an archive of torch.export are put in order and aligned") {
    const fs::path path = exported(folder);
    copy = folder.path() / "copy.pt2";
    CHECK(convert(path, copy, {.order = {"c", "b", "a"}}).value().storages == 3);
    CHECK(record_names(copy) ==
          std::vector<std::string>{"archive_format", "data/weights/weight_2",
                                   "data/weights/weight_1", "data/weights/weight_0",
                                   "data/weights/model_weights_config.json", "version", "byteorder",
                                   ".data/serialization_id"});
    CHECK(contents(copy) == contents(path));
    const Checkpoint ordered = opened(copy);
    const auto offset = [&](std::string_view name) {
      return Backing(ordered).storage(ordered.get(name)->storage_index).payload_offset;
    };
    CHECK(offset("c") < offset("b"));
    CHECK(offset("b") < offset("a"));

    CHECK(convert(path, copy, {.alignment = 4096}).value().storages == 3);
    CHECK(contents(copy) == contents(path));
    const Checkpoint aligned = opened(copy);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(Backing(aligned).storage(i).payload_offset % 4096 == 0);
  }

  TEST_CASE_FIXTURE(Copying, "tensors of several sources, and back") {
    const fs::path three = three_tensors(folder, 4);
    const std::array<fs::path, 2> sources{three, data / "views.pt"};
    const fs::path all = folder.path() / "all.pt";
    ConvertReport report = convert(sources, all).value();
    CHECK(report.tensors == 3 + contents(data / "views.pt").size());
    CHECK(report.old_bytes == fs::file_size(three) + fs::file_size(data / "views.pt"));
    CHECK(report.new_bytes == fs::file_size(all));
    std::vector<std::string> expected = contents(three);
    for (const std::string& text : contents(data / "views.pt")) expected.push_back(text);
    CHECK(contents(all) == expected);
    const fs::path set = folder.path() / "set" / "";
    report = convert(all, set, {.max_shard_bytes = 40, .shared = SharedElements::copy}).value();
    CHECK(report.files.size() > 3);
    CHECK(report.files.back() == set / "model.safetensors.index.json");
    std::vector<std::string> found = contents(set);
    std::ranges::sort(found);
    std::ranges::sort(expected);
    CHECK(found == expected);
    const fs::path index = folder.path() / "set" / "m.bin.index.json";
    report = convert(set, index, {.max_shard_bytes = 40}).value();
    CHECK(report.left_out.empty());
    found = contents(index);
    std::ranges::sort(found);
    CHECK(found == expected);
    CHECK_FAILS(convert(std::array{three, all}, folder.path() / "twice.pt"),
                ErrorCode::invalid_argument, "has a, and so has");
  }

  TEST_CASE_FIXTURE(Copying, "what is left out has a name") {
    copy = folder.path() / "copy.safetensors";
    ConvertOptions options{.shared = SharedElements::copy};
    const ConvertReport report = convert(data / "training.pt", copy, options).value();
    CHECK(report.left_out.front() == "model._metadata");
    CHECK(std::ranges::count(report.left_out, "optimizer.param_groups") == 1);
    for (const char* name : {"sparse.pt", "nested_tensor.pt", "scripted.pt", "torchscript.pt"}) {
      CAPTURE(name);
      CHECK_FALSE(convert(data / name, copy, options).value().left_out.empty());
    }
    for (const char* name : {"tensor_root.pt", "views.pt"})
      CHECK(convert(data / name, copy, options).value().left_out.empty());
  }

  TEST_CASE_FIXTURE(Copying, "every fixture becomes a dict of the same tensors, or says why not") {
    std::set<std::string> refused;
    for (const auto& entry : fs::directory_iterator(data)) {
      if (entry.path().extension() != ".pt") continue;
      CAPTURE(entry.path().filename().native());
      const Result<ConvertReport> report = convert(entry.path(), copy, {.tensors_only = true});
      if (!report) {
        CHECK_FALSE(report.error().message.empty());
        refused.insert(entry.path().filename());
        continue;
      }
      std::vector<std::string> expected = contents(entry.path());
      if (!expected.empty() && expected[0].starts_with(' '))
        expected[0].insert(0, entry.path().stem().native());  // the name that it gets
      CHECK(contents(copy) == expected);
    }
    // Names that are there twice, lazy bits, no tensors, and scales that no dict of tensors has.
    CHECK(refused == std::set<std::string>{"colliding_names.pt", "conjugate.pt", "int_keys.pt",
                                           "negative.pt", "no_tensors.pt", "quantized.pt"});
  }

  TEST_CASE_FIXTURE(Copying, "an order and an alignment of what becomes a dict") {
    const fs::path path = three_tensors(folder, 2000);
    REQUIRE_OK(convert(path, copy, {.alignment = 4096, .order = {"c", "a"}, .tensors_only = true}));
    const Checkpoint read = opened(copy);
    CHECK(read.tensors()[0].name == "c");
    CHECK(read.tensors()[1].name == "a");
    for (std::size_t i = 0; i < 3; ++i) CHECK(Backing(read).storage(i).payload_offset % 4096 == 0);
    CHECK_FAILS(convert(path, copy, {.order = {"d"}, .tensors_only = true}), ErrorCode::not_found,
                "no tensor \"d\"");
  }

  TEST_CASE_FIXTURE(Copying, "targets that cannot be") {
    const auto refused = [](const char* path, const ConvertOptions& options, const char* words) {
      CHECK_FAILS(check_target(path, options), ErrorCode::invalid_argument, words);
    };
    refused("model.gguf", {}, "must end in .safetensors");
    refused("model", {}, "must end in .safetensors");
    refused(".index.json", {}, "must end in .safetensors");
    refused("m.safetensors", {.alignment = 64}, "is for torch files only");
    refused("m.pt", {.shared = SharedElements::drop}, "is for safetensors only");
    refused("m.pt2", {.tensors_only = true}, "one file of its own kind");
    refused("m", {.format = WrittenFormat::pt, .max_shard_bytes = 1}, "must have an ending");
    REQUIRE_OK(check_target("m", {.format = WrittenFormat::pt}));
    REQUIRE_OK(check_target("m/", {.max_shard_bytes = 1}));
    CHECK_FAILS(convert(data / "views.pt", folder.path() / "x.pt2"), ErrorCode::unsupported,
                "no single archive of torch.export");
    CHECK_FAILS(convert(std::span<const fs::path>(), folder.path() / "x.pt"),
                ErrorCode::invalid_argument, "no checkpoint");
    CHECK(fs::is_empty(folder.path()));
  }

  TEST_CASE_FIXTURE(Copying, "what is no checkpoint of torch is refused as it is by open()") {
    CHECK_FAILS(convert(data / "strangers" / "archive.7z", copy), ErrorCode::not_a_checkpoint,
                "7z");
    CHECK_FAILS(convert(folder.path() / "none.pt", copy), ErrorCode::io, "No such file");
  }
}

}  // namespace
}  // namespace weightmap
