#include "weightmap/repack.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/half.hpp"

namespace weightmap {
namespace {

using test::data;
using test::opened;
using test::read_file;
using test::TemporaryFolder;

std::vector<std::string> record_names(const std::filesystem::path& path) {
  const ArchiveReader archive = ArchiveReader::open(path).value();
  std::vector<std::string> names;
  for (const ArchiveReader::RecordInfo& record : archive.records()) names.emplace_back(record.name);
  return names;
}

bool has_record(const std::filesystem::path& path, std::string_view name) {
  return ArchiveReader::open(path).value().has(name);
}

std::uint32_t first_crc(const std::filesystem::path& path) {
  const Checkpoint checkpoint = opened(path);
  return checkpoint.storage(0).crc32;
}

// Names, types, shapes and values of all tensors.
std::vector<std::string> contents(const std::filesystem::path& path) {
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

struct Floats {
  std::vector<float> values;
  RecordContent content() const { return RecordContent::bytes(std::as_bytes(std::span(values))); }
};

// A checkpoint {"a": .., "b": .., "c": ..} of float32 storages of so many elements, all of them
// their own index.
std::filesystem::path three_tensors(const TemporaryFolder& folder, std::size_t elements) {
  CheckpointWriter writer;
  Floats floats;
  for (std::size_t i = 0; i < elements; ++i) floats.values.push_back(static_cast<float>(i));
  const std::array sizes{static_cast<std::int64_t>(elements)};
  const std::array<std::int64_t, 1> strides{1};
  std::vector<Value> items;
  for (const char* name : {"a", "b", "c"}) {
    items.push_back(writer.values().string(name));
    items.push_back(
        writer.tensor(writer.add_storage(floats.content()), {.sizes = sizes, .strides = strides}));
  }
  const Value root = writer.values().dict(items);
  const std::filesystem::path path = folder.path() / "three.pt";
  REQUIRE_OK(std::move(writer).write(root, path));
  return path;
}

std::vector<float> values_of(const Checkpoint& checkpoint, std::string_view name) {
  const NamedTensor tensor = checkpoint.get(name).value();
  std::vector<float> values(tensor.view.numel());
  REQUIRE_OK(checkpoint.gather(tensor.view, std::as_writable_bytes(std::span(values))));
  return values;
}

TEST_SUITE("repack") {
  TEST_CASE("a file of torch.save is copied byte for byte") {
    const TemporaryFolder folder;
    // What is not opened; what another tool zipped, whose layout is not torch's; TorchScript, which
    // may come in another order; and one without a byteorder, which gets one.
    const std::set<std::string> others{"torchscript.pt", "scripted.pt", "rezipped_deflated.pt",
                                       "rezipped_stored.pt", "no_byteorder.pt"};
    std::size_t compared = 0;
    for (const auto& entry : std::filesystem::directory_iterator(data)) {
      const std::string name = entry.path().filename();
      if (entry.path().extension() != ".pt" || others.contains(name)) continue;
      CAPTURE(name);
      const std::filesystem::path copy = folder.path() / name;
      REQUIRE_OK(repack(entry.path(), copy));
      CHECK(read_file(copy) == read_file(entry.path()));
      ++compared;
    }
    CHECK(compared == 41);
  }

  TEST_CASE("what differs for another reason has the same tensors") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(data / "no_byteorder.pt", copy));
    CHECK(contents(copy) == contents(data / "no_byteorder.pt"));
    CHECK(has_record(copy, "byteorder"));
    REQUIRE_OK(repack(data / "rezipped_stored.pt", copy));
    CHECK(contents(copy) == contents(data / "state_dict.pt"));
    const Checkpoint read = opened(copy);
    CHECK(read.stats().local_headers_read == 1);
  }

  TEST_CASE("alignments, and back again to the same bytes") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, (std::size_t{2} << 20) / 4 + 3);
    const std::filesystem::path copy = folder.path() / "copy.pt";
    for (const std::uint64_t alignment : {4096u, 32768u, 1u << 20, 2u << 20}) {
      CAPTURE(alignment);
      const RepackReport report = repack(path, copy, {.alignment = alignment}).value();
      CHECK(report.alignment == alignment);
      CHECK(report.storages == 3);
      CHECK(report.new_bytes == std::filesystem::file_size(copy));
      const Checkpoint read = opened(copy);
      for (std::size_t i = 0; i < 3; ++i) CHECK(read.storage(i).payload_offset % alignment == 0);
      CHECK(has_record(copy, ".format_version") == (alignment <= 65504));
      CHECK(contents(copy) == contents(path));
      CHECK(read.verify_crc().faults.empty());
      // The same again, which is found by itself.
      REQUIRE_OK(repack(copy, folder.path() / "same.pt"));
      CHECK(read_file(folder.path() / "same.pt") == read_file(copy));
    }
    REQUIRE_OK(repack(path, copy, {.alignment = 4096}));
    REQUIRE_OK(repack(copy, copy, {.alignment = 64}));
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE("an alignment that no record said before is said") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(data / "old_order.pt", copy, {.alignment = 256}));
    const Checkpoint read = opened(copy);
    CHECK(read.info().storage_alignment == 256);
    CHECK(contents(copy) == contents(data / "old_order.pt"));
  }

  TEST_CASE("an alignment that cannot be is refused") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    CHECK_FAILS(repack(data / "views.pt", copy, {.alignment = 0}), ErrorCode::invalid_argument,
                "alignment of 0");
    CHECK_FAILS(repack(data / "views.pt", copy, {.alignment = 100000}), ErrorCode::invalid_argument,
                "it must be a power of two");
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("storages in the order of use") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 4);
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(path, copy, {.order = {"c", "a", "c"}}));
    const std::vector<std::string> names{
        "data.pkl", ".storage_alignment",    "byteorder", "data/2", "data/0", "data/1",
        "version",  ".data/serialization_id"};
    CHECK(record_names(copy) == names);
    CHECK(contents(copy) == contents(path));
    REQUIRE_OK(repack(copy, copy, {.order = {"a", "b", "c"}}));
    CHECK(record_names(copy)[3] == "data/0");
  }

  TEST_CASE("the order that the file has keeps .format_version") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 4);
    REQUIRE_OK(repack(path, folder.path() / "copy.pt", {.order = {"a", "b"}}));
    CHECK(read_file(folder.path() / "copy.pt") == read_file(path));
  }

  TEST_CASE("an order with a tensor that there is not is refused") {
    const TemporaryFolder folder;
    CHECK_FAILS(repack(data / "views.pt", folder.path() / "copy.pt", {.order = {"wieght"}}),
                ErrorCode::not_found, "wieght");
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("CRCs are left out, and computed again") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 100);
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(path, copy, {.crc32 = false}));
    CHECK(first_crc(copy) == 0);
    REQUIRE_OK(repack(copy, folder.path() / "kept.pt"));
    CHECK(first_crc(folder.path() / "kept.pt") == 0);
    REQUIRE_OK(repack(copy, copy, {.crc32 = true}));
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE("compact drops what no tensor uses") {
    const TemporaryFolder folder;
    CheckpointWriter writer;
    Floats floats;
    for (std::size_t i = 0; i < 100; ++i) floats.values.push_back(static_cast<float>(i));
    const std::size_t cut = writer.add_storage(floats.content());
    const std::size_t whole = writer.add_storage(floats.content());
    const std::size_t empty = writer.add_storage(floats.content());
    writer.add_storage(floats.content());  // of nobody
    const std::array<std::int64_t, 1> one{1}, two{2}, three{3}, all{100}, none{0};
    const std::array values{
        writer.tensor(cut, {.storage_offset = 40, .sizes = three, .strides = two}),
        writer.tensor(cut, {.storage_offset = 42, .sizes = two, .strides = one}),
        writer.tensor(cut, {.storage_offset = 99, .sizes = none, .strides = one}),
        writer.tensor(whole, {.sizes = all, .strides = one}),
        writer.tensor(empty, {.storage_offset = 7, .sizes = none, .strides = one})};
    const std::filesystem::path path = folder.path() / "views.pt";
    REQUIRE_OK(std::move(writer).write(writer.values().list(values), path));
    const std::filesystem::path copy = folder.path() / "copy.pt";
    const RepackReport report = repack(path, copy, {.compact = true}).value();
    CHECK(report.dropped_bytes == 380 + 400 + 400);
    CHECK(report.storages == 3);
    const Checkpoint read = opened(copy);
    CHECK(read.storage_count() == 3);
    CHECK(read.get("0")->storage_offset == 0);
    CHECK(read.get("1")->storage_offset == 2);
    CHECK(read.get("2")->storage_offset == 0);
    CHECK(read.get("0")->storage == read.get("1")->storage);
    CHECK(values_of(read, "0") == std::vector<float>{40, 42, 44});
    CHECK(values_of(read, "1") == std::vector<float>{42, 43});
    CHECK(read.storage(read.get("0")->storage_index).nbytes == 20);
    CHECK(read.storage(read.get("3")->storage_index).nbytes == 400);
    CHECK(read.storage(read.get("4")->storage_index).nbytes == 0);
    CHECK(read.verify_crc().faults.empty());
  }

  TEST_CASE("compact changes no tensor of any fixture") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    for (const auto& entry : std::filesystem::directory_iterator(data)) {
      const std::string name = entry.path().filename();
      if (entry.path().extension() != ".pt" || name == "torchscript.pt" || name == "scripted.pt")
        continue;
      CAPTURE(name);
      REQUIRE_OK(repack(entry.path(), copy, {.compact = true}));
      CHECK(contents(copy) == contents(entry.path()));
    }
  }

  TEST_CASE("a legacy stream becomes an archive with the same tensors") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    for (const char* name : {"dict.pt", "dtypes.pt", "module.pt"}) {
      CAPTURE(name);
      REQUIRE_OK(repack(data / "legacy" / name, copy));
      CHECK(contents(copy) == contents(data / "legacy" / name));
      OpenOptions options;
      options.verify = Verify::crc;
      const Checkpoint made = opened(copy, options);
      CHECK(made.info().format == "torch_zip");
      CHECK(made.stats().strategy == OffsetStrategy::calculated);
      CHECK(made.storage(0).key == "0");
    }
    REQUIRE_OK(repack(copy, folder.path() / "again.pt"));
    CHECK(read_file(folder.path() / "again.pt") == read_file(copy));
    CHECK_FAILS(repack(data / "legacy" / "dict.pt", copy, {.compact = true}),
                ErrorCode::unsupported, "repack it first");
    CHECK_FAILS(update_tensor(data / "legacy" / "dict.pt", "w", RecordContent::zeros(12)),
                ErrorCode::unsupported, "weightmap repack makes one of it");
  }

  TEST_CASE("compressed storages are stored again") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(data / "rezipped_deflated.pt", copy));
    const Checkpoint made = opened(copy);
    CHECK(made.stats().storages_copied == 0);
    CHECK(contents(copy) == contents(data / "state_dict.pt"));
  }

  TEST_CASE("compact leaves whole what the pickle refers to as a storage") {
    const TemporaryFolder folder;
    REQUIRE_OK(repack(data / "bare_storages.pt", folder.path() / "copy.pt", {.compact = true}));
    const Checkpoint before = opened(data / "bare_storages.pt");
    const Checkpoint after = opened(folder.path() / "copy.pt");
    REQUIRE(after.storage_count() == before.storage_count());
    for (std::size_t i = 0; i < after.storage_count(); ++i)
      CHECK(after.storage(i).nbytes == before.storage(i).nbytes);
  }

  TEST_CASE("float32 becomes bfloat16, rounded to the even one, and NaN stays NaN") {
    const TemporaryFolder folder;
    const float inf = std::numeric_limits<float>::infinity();
    const Floats floats{{1.0f, 1.00390625f, 1.01171875f, -0.0f, 3.4e38f, inf,
                         std::numeric_limits<float>::quiet_NaN(), 1e-40f}};
    CheckpointWriter writer;
    const std::size_t storage = writer.add_storage(floats.content());
    const std::array<std::int64_t, 1> sizes{8}, part{3}, strides{1};
    const std::array values{
        writer.tensor(storage, {.sizes = sizes, .strides = strides, .requires_grad = true}),
        writer.parameter(
            writer.tensor(storage, {.storage_offset = 1, .sizes = part, .strides = strides}))};
    const std::filesystem::path path = folder.path() / "model.pt";
    REQUIRE_OK(std::move(writer).write(writer.values().list(values), path));
    const std::filesystem::path copy = folder.path() / "copy.pt";
    const RepackReport report =
        repack(path, copy, {.dtype = Conversion{DType::float32, DType::bfloat16}}).value();
    CHECK(report.converted_tensors == 2);
    const Checkpoint read = opened(copy);
    CHECK(read.storage_count() == 1);
    CHECK(read.storage(0).nbytes == 16);
    const NamedTensor whole = read.get("0").value();
    CHECK(whole.requires_grad);
    std::vector<std::uint16_t> bits;
    const std::span<const bfloat16> converted = whole.as<bfloat16>().value();
    for (const bfloat16 value : converted) bits.push_back(value.bits());
    CHECK(bits == std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x3F82, 0x8000, 0x7F80, 0x7F80, 0x7FC0,
                                             0x0001});
    const NamedTensor view = read.get("1").value();
    CHECK(view.is_parameter);
    CHECK(view.storage_offset == 1);
    CHECK(view.view.dtype() == DType::bfloat16);
  }

  TEST_CASE("conversions of each of the four types to each") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 5);
    const std::filesystem::path copy = folder.path() / "copy.pt";
    const std::array types{DType::float64, DType::float32, DType::float16, DType::bfloat16};
    for (const DType to : types) {
      for (const DType via : types) {
        if (via == DType::float32 || to == via) continue;
        REQUIRE_OK(repack(path, copy, {.dtype = Conversion{DType::float32, via}}));
        REQUIRE_OK(repack(copy, copy, {.dtype = Conversion{via, to}}));
        REQUIRE_OK(repack(copy, copy, {.dtype = Conversion{to, DType::float32}}));
        CHECK(values_of(opened(copy), "b") == std::vector<float>{0, 1, 2, 3, 4});
      }
    }
    CHECK(read_file(copy) == read_file(path));
  }

  TEST_CASE("float16 overflows to infinity, and float64 goes by way of float32") {
    const TemporaryFolder folder;
    const std::vector<double> doubles{65519, 65520, -1e300, 1.00048828125000011};
    CheckpointWriter writer;
    const std::array<std::int64_t, 1> sizes{4}, strides{1};
    const Value root =
        writer.tensor(writer.add_storage(RecordContent::bytes(std::as_bytes(std::span(doubles)))),
                      {.dtype = DType::float64, .sizes = sizes, .strides = strides});
    REQUIRE_OK(std::move(writer).write(root, folder.path() / "model.pt"));
    REQUIRE_OK(repack(folder.path() / "model.pt", folder.path() / "copy.pt",
                      {.dtype = Conversion{DType::float64, DType::float16}}));
    const Checkpoint read = opened(folder.path() / "copy.pt");
    std::vector<std::uint16_t> bits;
    const std::span<const float16> converted = read.tensors()[0].as<float16>().value();
    for (const float16 value : converted) bits.push_back(value.bits());
    CHECK(bits == std::vector<std::uint16_t>{0x7BFF, 0x7C00, 0xFC00, 0x3C00});
  }

  TEST_CASE("a file in the other byte order is converted in it") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(repack(data / "big_endian.pt", copy,
                      {.compact = true, .dtype = Conversion{DType::float32, DType::float64}}));
    const Checkpoint before = opened(data / "big_endian.pt");
    const Checkpoint after = opened(copy);
    CHECK(after.info().byteorder == "big");
    std::size_t converted = 0;
    for (const NamedTensor& tensor : before.tensors()) {
      if (tensor.view.dtype() != DType::float32) continue;
      ++converted;
      const std::vector<float> values = values_of(before, tensor.name);
      std::vector<double> doubles(values.size());
      REQUIRE_OK(
          after.gather(after.get(tensor.name)->view, std::as_writable_bytes(std::span(doubles))));
      CHECK(std::equal(values.begin(), values.end(), doubles.begin(), doubles.end()));
    }
    CHECK(converted > 0);
  }

  TEST_CASE("parts of quantized tensors keep their type") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    REQUIRE_OK(
        repack(data / "quantized.pt", copy, {.dtype = Conversion{DType::float64, DType::float16}}));
    CHECK(contents(copy) == contents(data / "quantized.pt"));
  }

  TEST_CASE("tensors with attributes, and of torch.Size, are converted") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    const RepackReport report =
        repack(data / "attributes.pt", copy, {.dtype = Conversion{DType::float32, DType::float16}})
            .value();
    CHECK(report.converted_tensors == 2);
    const Checkpoint read = opened(copy);
    for (const NamedTensor& tensor : read.tensors()) CHECK(tensor.view.dtype() == DType::float16);
  }

  TEST_CASE("types that are not converted are refused") {
    const TemporaryFolder folder;
    CHECK_FAILS(repack(data / "views.pt", folder.path() / "copy.pt",
                       {.dtype = Conversion{DType::float32, DType::int32}}),
                ErrorCode::invalid_argument, "float32 cannot become int32");
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("a storage that is referred to outside of a tensor is not converted") {
    const TemporaryFolder folder;
    CheckpointWriter writer;
    const Floats floats{{1, 2, 3}};
    const std::size_t storage = writer.add_storage(floats.content());
    const std::array<std::int64_t, 1> sizes{3}, strides{1};
    const std::array values{writer.tensor(storage, {.sizes = sizes, .strides = strides}),
                            writer.storage(storage, DType::float32)};
    const std::filesystem::path path = folder.path() / "model.pt";
    REQUIRE_OK(std::move(writer).write(writer.values().list(values), path));
    CHECK_FAILS(repack(path, path, {.dtype = Conversion{DType::float32, DType::float16}}),
                ErrorCode::unsupported, "storage data/0 cannot be changed");
  }

  TEST_CASE("the tree stays what it was when its tensors change") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    // There and back again without a loss, so the pickle is what torch wrote.
    for (const char* name : {"training.pt", "shared_list.pt", "module.pt", "many_training.pt"}) {
      CAPTURE(name);
      REQUIRE_OK(repack(data / name, copy, {.dtype = Conversion{DType::float32, DType::float64}}));
      CHECK(read_file(copy) != read_file(data / name));
      REQUIRE_OK(repack(copy, copy, {.dtype = Conversion{DType::float64, DType::float32}}));
      CHECK(contents(copy) == contents(data / name));
      const ArchiveReader before = ArchiveReader::open(data / name).value();
      const ArchiveReader after = ArchiveReader::open(copy).value();
      CHECK(before.read("data.pkl").value() == after.read("data.pkl").value());
    }
  }

  TEST_CASE("the old file may be the new one, and stays whole for who has it mapped") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 100000);
    const Checkpoint mapped = opened(path);
    REQUIRE_OK(repack(path, path, {.alignment = 4096}));
    CHECK(mapped.state() == CheckpointState::replaced);
    CHECK(mapped.verify_crc().faults.empty());
    const Checkpoint read = opened(path);
    CHECK(read.info().storage_alignment == 4096);
  }

  TEST_CASE("damage is found and does not get a new CRC-32") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 1000);
    const std::uint64_t place =
        ArchiveReader::open(path).value().payload_offset("data/1").value() + 12;
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(place))
        .put('x');
    CHECK_FAILS(repack(path, folder.path() / "copy.pt"), ErrorCode::corrupt, "has CRC-32");
    CHECK_FAILS(repack(path, folder.path() / "copy.pt", {.crc32 = false, .compact = true}),
                ErrorCode::corrupt, "data/1");
    CHECK_FALSE(std::filesystem::exists(folder.path() / "copy.pt"));
  }

  TEST_CASE("a file that is written to, or cut, meanwhile is an error") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, std::size_t{4} << 20);
    const std::filesystem::path copy = folder.path() / "copy.pt";
    RepackOptions options;
    options.progress = [&](std::uint64_t, std::uint64_t) {
      std::ofstream(path, std::ios::app | std::ios::binary).put('x');
      return true;
    };
    CHECK_FAILS(repack(path, copy, options), ErrorCode::io, "was written to while it was copied");
    REQUIRE_OK(repack(three_tensors(folder, std::size_t{4} << 20), path));
    options.progress = [&](std::uint64_t, std::uint64_t) {
      std::filesystem::resize_file(path, 4096);
      return true;
    };
    CHECK_FAILS(repack(path, copy, options), ErrorCode::io, "");
    CHECK_FALSE(std::filesystem::exists(copy));
  }

  TEST_CASE("progress counts up to all bytes, and stops") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, std::size_t{2} << 20);
    std::uint64_t last = 0;
    RepackOptions options;
    options.progress = [&](std::uint64_t done, std::uint64_t all) {
      CHECK(done <= all);
      last = done;
      return true;
    };
    const RepackReport report = repack(path, folder.path() / "copy.pt", options).value();
    CHECK(last == report.new_bytes);
    options.progress = [](std::uint64_t, std::uint64_t) { return false; };
    CHECK_FAILS(repack(path, folder.path() / "no.pt", options), ErrorCode::cancelled, "stopped");
    CHECK_FALSE(std::filesystem::exists(folder.path() / "no.pt"));
  }

  TEST_CASE("a file with reserved storages is refused until it is sealed") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    CheckpointWriter writer;
    const std::array<std::int64_t, 1> sizes{3}, strides{1};
    const Value root = writer.tensor(writer.add_storage(RecordContent::reserved(12)),
                                     {.sizes = sizes, .strides = strides});
    REQUIRE_OK(std::move(writer).write(root, path));
    CHECK_FAILS(repack(path, folder.path() / "copy.pt"), ErrorCode::unsupported, "is not sealed");
    CHECK_FALSE(std::filesystem::exists(folder.path() / "copy.pt"));
  }

  TEST_CASE(
      "TorchScript archives keep all their records, and what would change the pickle is refused") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    for (const char* name : {"torchscript.pt", "scripted.pt"}) {
      REQUIRE_OK(repack(data / name, copy));
      CHECK(contents(copy) == contents(data / name));
      CHECK(has_record(copy, "constants.pkl"));
      CHECK(has_record(copy, "code/__torch__.py") == has_record(data / name, "code/__torch__.py"));
      CHECK_FAILS(repack(data / name, copy, {.compact = true}), ErrorCode::unsupported,
                  "is a torchscript file, whose pickle is not written again");
      CHECK_FAILS(repack(data / name, copy, {.dtype = Conversion{DType::float32, DType::float16}}),
                  ErrorCode::unsupported,
                  "is a torchscript file, whose pickle is not written again");
    }
  }

  TEST_CASE("what is no checkpoint of torch is refused as it is by open()") {
    const TemporaryFolder folder;
    const std::filesystem::path copy = folder.path() / "copy.pt";
    CHECK_FAILS(repack(data / "strangers" / "archive.7z", copy), ErrorCode::not_a_checkpoint, "7z");
    CHECK_FAILS(repack(folder.path() / "none.pt", copy), ErrorCode::io, "No such file");
  }
}

TEST_SUITE("update") {
  TEST_CASE("one tensor gets other values, and nothing else changes") {
    const TemporaryFolder folder;
    const std::filesystem::path path = three_tensors(folder, 4);
    const std::filesystem::path same = folder.path() / "same.pt";
    std::filesystem::copy(path, same);
    const std::array<float, 4> values{7, 8, 9, 10};
    const auto content = RecordContent::bytes(std::as_bytes(std::span(values)));
    const UpdateReport report = update_tensor(path, "b", content).value();
    CHECK(report.tensor_bytes == 16);
    CHECK(report.file_bytes == std::filesystem::file_size(path));
    const Checkpoint read = opened(path);
    CHECK(values_of(read, "a") == std::vector<float>{0, 1, 2, 3});
    CHECK(values_of(read, "b") == std::vector<float>{7, 8, 9, 10});
    CHECK(values_of(read, "c") == std::vector<float>{0, 1, 2, 3});
    CHECK(read.verify_crc().faults.empty());
    CHECK(std::filesystem::file_size(path) == std::filesystem::file_size(same));
    // And back to the bytes that it was.
    const std::array<float, 4> old{0, 1, 2, 3};
    REQUIRE_OK(update_tensor(path, "b", RecordContent::bytes(std::as_bytes(std::span(old)))));
    CHECK(read_file(path) == read_file(same));
  }

  TEST_CASE("a view within a storage, whose other bytes stay") {
    const TemporaryFolder folder;
    CheckpointWriter writer;
    const Floats floats{{0, 1, 2, 3, 4, 5}};
    const std::size_t storage = writer.add_storage(floats.content());
    const std::array<std::int64_t, 1> two{2}, six{6}, strides{1};
    const std::array items{
        writer.values().string("part"),
        writer.tensor(storage, {.storage_offset = 2, .sizes = two, .strides = strides}),
        writer.values().string("whole"),
        writer.tensor(storage, {.sizes = six, .strides = strides}),
        writer.values().string("end"),
        writer.tensor(storage, {.storage_offset = 4, .sizes = two, .strides = strides})};
    const std::filesystem::path path = folder.path() / "model.pt";
    REQUIRE_OK(std::move(writer).write(writer.values().dict(items), path));
    const std::array<float, 2> values{20, 30};
    const auto content = RecordContent::bytes(std::as_bytes(std::span(values)));
    CHECK_FAILS(update_tensor(path, "part", content), ErrorCode::invalid_argument,
                "shares its bytes, so \"whole\" would change, too");
    const UpdateReport report = update_tensor(path, "part", content, {.shared = true}).value();
    CHECK(report.others == std::vector<std::string>{"whole"});
    CHECK(values_of(opened(path), "whole") == std::vector<float>{0, 1, 20, 30, 4, 5});
  }

  TEST_CASE("what does not fit is refused, and the file stays as it was") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.pt";
    const std::array<std::byte, 4> four{};
    const auto content = RecordContent::bytes(four);
    const auto refused = [&](const char* fixture, const char* name, ErrorCode code,
                             const char* text) {
      std::filesystem::copy(data / fixture, path,
                            std::filesystem::copy_options::overwrite_existing);
      CHECK_FAILS(update_tensor(path, name, content), code, text);
      CHECK(read_file(path) == read_file(data / fixture));
    };
    refused("no_crc.pt", "nowhere", ErrorCode::not_found, "nowhere");
    const Checkpoint plain = opened(data / "no_crc.pt");
    refused("no_crc.pt", std::string(plain.tensors()[0].name).c_str(), ErrorCode::invalid_argument,
            "has 12 bytes, the new elements have 4");
    const Checkpoint big = opened(data / "big_endian.pt");
    refused("big_endian.pt", std::string(big.tensors()[0].name).c_str(), ErrorCode::unsupported,
            "other byte order");
    const Checkpoint conjugate = opened(data / "conjugate.pt");
    std::string conjugated;
    for (const NamedTensor& tensor : conjugate.tensors())
      if (tensor.view.is_conjugate()) conjugated = tensor.name;
    refused("conjugate.pt", conjugated.c_str(), ErrorCode::unsupported, "conjugated or negated");
    const Checkpoint views = opened(data / "views.pt");
    std::string strided;
    for (const NamedTensor& tensor : views.tensors())
      if (!tensor.view.is_contiguous()) strided = tensor.name;
    refused("views.pt", strided.c_str(), ErrorCode::unsupported, "row-major in one piece");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  }
}

}  // namespace
}  // namespace weightmap
