#include "weightmap/checkpoint_writer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

using test::data;
using test::flat_tensor;
using test::opened;
using test::read_file;
using test::TemporaryFolder;

constexpr std::array<float, 6> six = {1, 2, 3, 4, 5, 6};

RecordContent floats(std::span<const float> values) {
  return RecordContent::bytes(std::as_bytes(values));
}

bool has_record(const fs::path& path, std::string_view name) {
  const ArchiveReader archive = ArchiveReader::open(path).value();
  return archive.has(name);
}

// A checkpoint of this many float32 storages of `bytes` bytes each, in a list.
Value tensors_of(CheckpointWriter& writer, std::size_t count, const std::vector<float>& values) {
  std::vector<Value> tensors;
  for (std::size_t i = 0; i < count; ++i) tensors.push_back(flat_tensor(writer, floats(values)));
  return writer.values().list(tensors);
}

std::string written(CheckpointWriter writer, const Value& root) {
  std::string text;
  const auto take = [&text](std::span<const std::byte> part) -> Result<void> {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return {};
  };
  REQUIRE_OK(std::move(writer).write(root, take));
  return text;
}

// What CheckpointWriter::tensor() stands for, from values that say nothing about tensors.
class CallsOfTensors {
 public:
  explicit CallsOfTensors(CheckpointWriter& writer) : writer_(writer), build_(writer.values()) {}

  Value tensor(std::size_t storage, const TensorSpec& spec) {
    const Value stored = writer_.storage(storage, spec.dtype);
    const bool is_typed = storage_classes.contains(spec.dtype);
    const std::array arguments{stored,
                               build_.integer(spec.storage_offset),
                               integers(spec.sizes),
                               integers(spec.strides),
                               build_.boolean(spec.requires_grad),
                               writer_.ordered_dict({}),
                               is_typed ? Value() : global("torch", to_string(spec.dtype))};
    return build_.object(
        {.callable = global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3"),
         .arguments = build_.tuple(std::span(arguments).first(is_typed ? 6 : 7))});
  }

 private:
  static inline const std::set<DType> storage_classes{
      DType::float64,    DType::float32,   DType::float16, DType::bfloat16, DType::int64,
      DType::int32,      DType::int16,     DType::int8,    DType::uint8,    DType::boolean,
      DType::complex128, DType::complex64, DType::qint8,   DType::quint8,   DType::qint32,
      DType::quint4x2,   DType::quint2x4};

  Value global(std::string_view module, std::string_view name) {
    const std::string key = std::string(module) + "." + std::string(name);
    const auto known = globals_.find(key);
    if (known != globals_.end()) return known->second;
    return globals_.emplace(key, build_.global(module, name)).first->second;
  }
  Value integers(std::span<const std::int64_t> values) {
    std::vector<Value> made;
    for (const std::int64_t value : values) made.push_back(build_.integer(value));
    return build_.tuple(made);
  }

  CheckpointWriter& writer_;
  ValueBuilder& build_;
  std::map<std::string, Value> globals_;
};

// Tensors of all kinds in a random order, made by make(storage, spec).
template <class Make>
Value tensors_of_all_kinds(CheckpointWriter& writer, unsigned seed, std::size_t count,
                           const Make& make) {
  static constexpr std::array<std::string_view, 4> locations{"cpu", "cuda:0", "", "meta"};
  static constexpr std::array<std::int64_t, 6> numbers{0,   1,     255,
                                                       256, 70000, std::int64_t{1} << 33};
  std::mt19937 random(seed);
  ValueBuilder& build = writer.values();
  std::vector<Value> items;
  std::vector<Value> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_new = i == 0 || random() % 8 != 0;
    const std::size_t storage =
        is_new ? writer.add_storage(RecordContent::zeros(16 * (random() % 3)),
                                    locations[random() % 64 < 60 ? 0 : random() % 4])
               : random() % i / 4;
    const std::size_t rank = random() % 100 == 0 ? 17 + random() % 4 : random() % 5;
    std::vector<std::int64_t> sizes, strides;
    for (std::size_t d = 0; d < rank; ++d) {
      sizes.push_back(static_cast<std::int64_t>(random() % 3));
      strides.push_back(numbers[random() % 16 == 0 ? random() % 6 : 1]);
    }
    const auto dtype = static_cast<DType>(random() % 4 == 0 ? random() % dtype_count : 1);
    const Value tensor =
        make(storage, TensorSpec{.dtype = dtype,
                                 .storage_offset = numbers[random() % 16 == 0 ? random() % 6 : 0],
                                 .sizes = sizes,
                                 .strides = strides,
                                 .requires_grad = random() % 8 == 0});
    tensors.push_back(tensor);
    items.push_back(build.string("layer." + std::to_string(i)));
    const unsigned form = random() % 16;
    items.push_back(form == 0   ? writer.parameter(tensor)
                    : form == 1 ? tensors[random() % tensors.size()]
                    : form == 2 ? writer.storage(storage, dtype)
                                : tensor);
  }
  return writer.ordered_dict(items);
}

struct Target {
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";

  // The checkpoint of this value.
  Checkpoint saved(CheckpointWriter& writer, const Value& root) const {
    REQUIRE_OK(std::move(writer).write(root, path));
    return opened(path);
  }
};

TEST_SUITE("checkpoint writer") {
  TEST_CASE("tensors are written as the calls that they stand for") {
    for (unsigned seed = 0; seed < 20; ++seed) {
      INFO("seed ", seed);
      const std::size_t count = seed == 0 ? 3000 : 10 * seed;
      CheckpointWriter writer;
      const Value tensors = tensors_of_all_kinds(writer, seed, count,
                                                 [&](std::size_t storage, const TensorSpec& spec) {
                                                   return writer.tensor(storage, spec);
                                                 });
      CheckpointWriter general;
      CallsOfTensors calls(general);
      const Value pieces = tensors_of_all_kinds(
          general, seed, count,
          [&](std::size_t storage, const TensorSpec& spec) { return calls.tensor(storage, spec); });
      const bool is_same =
          written(std::move(writer), tensors) == written(std::move(general), pieces);
      CHECK(is_same);
    }
  }

  TEST_CASE_FIXTURE(Target, "the strides of an empty tensor whose sizes do not fit a product") {
    constexpr std::int64_t huge = std::int64_t{1} << 40;
    const std::int64_t dims[] = {0, huge, huge, 1, huge, 1};
    const TensorView view(DType::float32, 3, dims, nullptr, 0, 0);
    CheckpointWriter writer;
    const Result<Value> value = writer.tensor(view, false);
    REQUIRE_OK(value);
    const Checkpoint read = saved(writer, *value);
    const std::vector<std::int64_t> strides{1, huge, 1};
    const TensorView saved = read.tensors()[0].view;
    CHECK(std::ranges::equal(saved.strides(), strides));
  }

  TEST_CASE_FIXTURE(Target, "writes each dtype to the bytes that torch.save writes") {
    const Checkpoint torchs = opened(data / "dtypes.pt");
    CheckpointWriter writer;
    std::vector<Value> items;
    for (const NamedTensor& tensor : torchs.tensors()) {
      items.push_back(writer.values().string(tensor.name));
      items.push_back(writer.tensor(tensor.view).value());
    }
    const Value root = writer.values().dict(items);
    REQUIRE_OK(std::move(writer).write(root, folder.path() / "dtypes.pt"));
    CHECK(read_file(folder.path() / "dtypes.pt") == read_file(data / "dtypes.pt"));
  }

  TEST_CASE_FIXTURE(Target,
                    "shared storages are written once, and views keep their offsets and strides") {
    CheckpointWriter writer;
    const std::size_t storage = writer.add_storage(floats(six));
    const std::array<std::int64_t, 2> sizes{2, 2};
    const std::array<std::int64_t, 2> strides{1, 3};
    const Value whole = flat_tensor(writer, storage, 6);
    const Value view = writer.tensor(
        storage, {.storage_offset = 1, .sizes = sizes, .strides = strides, .requires_grad = true});
    const Value root = writer.values().list(std::array{whole, writer.parameter(view)});
    const Checkpoint read = saved(writer, root);
    CHECK(Backing(read).storage_count() == 1);
    const NamedTensor tensor = read.get("1").value();
    CHECK(tensor.storage_offset == 1);
    CHECK(tensor.is_parameter);
    CHECK(tensor.requires_grad);
    CHECK(std::vector(tensor.view.strides().begin(), tensor.view.strides().end()) ==
          std::vector<std::int64_t>{1, 3});
    std::array<float, 4> values{};
    REQUIRE_OK(tensor.view.gather(std::as_writable_bytes(std::span(values))));
    CHECK(values == std::array<float, 4>{2, 5, 3, 6});
  }

  TEST_CASE_FIXTURE(Target, "a tensor that is a lazy conjugate is one when it is read") {
    CheckpointWriter writer;
    const std::size_t storage = writer.add_storage(floats(six));
    const std::array items{writer.values().string("conj"), writer.values().boolean(true)};
    const Value tensor = writer.tensor(storage, {.dtype = DType::complex64,
                                                 .sizes = std::array<std::int64_t, 1>{3},
                                                 .strides = std::array<std::int64_t, 1>{1},
                                                 .metadata = writer.values().dict(items)});
    const Checkpoint read = saved(writer, writer.values().list(std::array{tensor}));
    CHECK(read.get("0").value().view.is_conjugate());
    CHECK_FALSE(read.get("0").value().view.is_negative());
  }

  TEST_CASE_FIXTURE(Target, "texts of one's own stand in the references to a storage") {
    CheckpointWriter writer;
    const Value key = writer.values().string("0");
    const StorageTexts texts{writer.values().string("storage"), key, writer.values().string("xla")};
    const Value tensor = flat_tensor(writer, writer.add_storage(floats(six), texts), 6);
    const Value root = writer.values().list(std::array{tensor, key});
    const Checkpoint read = saved(writer, root);
    const Value id = read.root()[0].arguments()[0].persistent_id();
    CHECK(id[3].string() == "xla");
    CHECK(id[2].is_same_as(read.root()[1]));
  }

  TEST_CASE_FIXTURE(Target, "a view that does not lie in one piece is written row-major") {
    CheckpointWriter first;
    const Value view = first.tensor(
        first.add_storage(floats(six)),
        {.sizes = std::array<std::int64_t, 2>{3, 2}, .strides = std::array<std::int64_t, 2>{1, 3}});
    REQUIRE_OK(std::move(first).write(view, folder.path() / "view.pt"));
    const Checkpoint read = opened(folder.path() / "view.pt");
    CheckpointWriter second;
    const Value copy = second.tensor(read.tensors()[0].view).value();
    REQUIRE_OK(std::move(second).write(copy, folder.path() / "copy.pt"));
    const Checkpoint copied = opened(folder.path() / "copy.pt");
    const auto values = copied.tensors()[0].as<float>().value();
    CHECK(std::vector(values.begin(), values.end()) == std::vector<float>{1, 4, 2, 5, 3, 6});
  }

  TEST_CASE_FIXTURE(Target, "the plan is what is written") {
    CheckpointWriter writer;
    const std::vector<float> values(1000, 1.5f);
    const Value root = tensors_of(writer, 12, values);
    const WritePlan plan = writer.plan(root, path).value();
    CHECK(fs::is_empty(folder.path()));
    const WritePlan written = std::move(writer).write(root, path).value();
    CHECK(plan.archive_bytes == fs::file_size(path));
    CHECK(written.archive_bytes == plan.archive_bytes);
    const Checkpoint read = opened(path);
    REQUIRE(plan.storages.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CHECK(plan.storages[i].offset == Backing(read).storage(i).payload_offset);
      CHECK(plan.storages[i].nbytes == 4000);
    }
  }

  TEST_CASE_FIXTURE(Target, "alignments that padding can do") {
    for (const std::uint64_t alignment : {1u, 64u, 4096u, 32768u}) {
      CheckpointWriter writer({.alignment = alignment});
      const std::vector<float> values(100, 1);
      const Value root = tensors_of(writer, 3, values);
      const WritePlan plan = std::move(writer).write(root, path).value();
      for (const WrittenStorage& storage : plan.storages) CHECK(storage.offset % alignment == 0);
      const Checkpoint read = opened(path);
      CHECK(read.info().storage_alignment == alignment);
      CHECK(has_record(path, ".format_version"));
    }
  }

  TEST_CASE_FIXTURE(Target, "alignment to 2 MiB moves large storages, and takes no space for it") {
    const std::uint64_t alignment = std::uint64_t{2} << 20;
    CheckpointWriter writer({.alignment = alignment});
    const std::vector<float> large(alignment / 4 + 1, 1), small(16, 2);
    const std::array values{writer.tensor(writer.add_storage(floats(small)), {}),
                            writer.tensor(writer.add_storage(floats(large)), {}),
                            writer.tensor(writer.add_storage(floats(large)), {}),
                            writer.tensor(writer.add_storage(floats(small)), {})};
    const Value root = writer.values().list(values);
    const WritePlan plan = std::move(writer).write(root, path).value();
    CHECK(plan.storages[0].offset < alignment);
    CHECK(plan.storages[1].offset == alignment);
    CHECK(plan.storages[2].offset == 3 * alignment);
    CHECK(plan.storages[3].offset < 5 * alignment);
    CHECK(plan.archive_bytes == fs::file_size(path));
    const Checkpoint read = opened(path);
    CHECK(read.info().storage_alignment == 64);
    CHECK(verify_crc(read).faults.empty());
    CHECK(read.stats().local_headers_read <= 1);
    // torch would compute other places.
    CHECK_FALSE(has_record(path, ".format_version"));
  }

  TEST_CASE_FIXTURE(Target, "storages in another order") {
    CheckpointWriter writer({.order = {2, 0, 1}});
    const std::vector<float> values(4, 1);
    const Value root = tensors_of(writer, 3, values);
    const WritePlan plan = std::move(writer).write(root, path).value();
    CHECK(plan.storages[2].offset < plan.storages[0].offset);
    CHECK(plan.storages[0].offset < plan.storages[1].offset);
    CHECK_FALSE(has_record(path, ".format_version"));
    const Checkpoint read = opened(path);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(Backing(read).storage(i).payload_offset == plan.storages[i].offset);
  }

  TEST_CASE_FIXTURE(
      Target, "reserved storages have the places of a normal save, and are named in the plan") {
    const std::vector<float> values(100000, 0);
    CheckpointWriter full, hole;
    const Value root = tensors_of(full, 2, values);
    const WritePlan normal = std::move(full).write(root, folder.path() / "full.pt").value();
    std::vector<Value> tensors;
    for (int i = 0; i < 2; ++i)
      tensors.push_back(flat_tensor(hole, RecordContent::reserved(400000)));
    const Value holes = hole.values().list(tensors);
    const WritePlan plan = std::move(hole).write(holes, folder.path() / "hole.pt").value();
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(plan.storages[i].offset == normal.storages[i].offset);
      CHECK(plan.storages[i].is_reserved);
      CHECK_FALSE(normal.storages[i].is_reserved);
    }
  }

  TEST_CASE_FIXTURE(Target, "a write over the checkpoint that is mapped leaves it whole") {
    CheckpointWriter first;
    const Value old = flat_tensor(first, floats(six));
    const Checkpoint mapped = saved(first, old);
    CheckpointWriter second;
    const Value again = second.tensor(mapped.tensors()[0].view).value();
    REQUIRE_OK(std::move(second).write(again, path));
    CHECK(mapped.state() == CheckpointState::replaced);
    const Checkpoint now = opened(path);
    for (const Checkpoint* checkpoint : {&mapped, &now}) {
      const auto values = checkpoint->tensors()[0].as<float>().value();
      CHECK(std::equal(values.begin(), values.end(), six.begin(), six.end()));
    }
  }

  TEST_CASE_FIXTURE(Target, "to a function, equal to the file") {
    std::string streamed;
    const std::vector<float> values(1000, 3);
    for (const bool to_file : {true, false}) {
      CheckpointWriter writer({.archive_name = "archive"});
      const Value root = tensors_of(writer, 3, values);
      if (to_file) {
        REQUIRE_OK(std::move(writer).write(root, path));
        continue;
      }
      REQUIRE_OK(std::move(writer).write(root, [&](std::span<const std::byte> part) {
        streamed.append(reinterpret_cast<const char*>(part.data()), part.size());
        return Result<void>{};
      }));
    }
    CHECK(streamed == read_file(path));
  }

  TEST_CASE_FIXTURE(Target, "a record of one's own stands behind the storages") {
    CheckpointWriter writer;
    writer.add_record("notes.txt", RecordContent::text("hello"));
    REQUIRE_OK(std::move(writer).write(Value(), path));
    const ArchiveReader archive = ArchiveReader::open(path).value();
    CHECK(archive.record(4).name == "notes.txt");
    CHECK(archive.read("notes.txt")->size() == 5);
  }

  TEST_CASE_FIXTURE(Target, "refuses a record that is a storage's") {
    CheckpointWriter writer;
    const std::vector<float> values(4, 1);
    const Value root = tensors_of(writer, 1, values);
    writer.add_record("data/0", RecordContent::text("x"));
    CHECK_FAILS(std::move(writer).write(root, path), ErrorCode::invalid_argument,
                "the record \"data/0\" is in the archive already");
    CHECK(fs::is_empty(folder.path()));
  }

  TEST_CASE("refuses an order that is none") {
    for (const std::vector<std::size_t>& order :
         {std::vector<std::size_t>{0}, {0, 0}, {1, 2}, {0, 1, 2}}) {
      CheckpointWriter writer({.order = order});
      const std::vector<float> values(4, 1);
      const Value root = tensors_of(writer, 2, values);
      CHECK_FAILS(writer.plan(root, "model.pt"), ErrorCode::invalid_argument,
                  "does not name each of the 2 storages once");
    }
  }

  TEST_CASE("refuses an alignment beyond padding that is no power of two") {
    CheckpointWriter writer({.alignment = 3000000});
    CHECK_FAILS(writer.plan(Value(), "model.pt"), ErrorCode::invalid_argument,
                "an alignment of 3000000 cannot be had: beyond 65504 it must be a power of two");
    CheckpointWriter zero({.alignment = 0});
    CHECK_FAILS(zero.plan(Value(), "model.pt"), ErrorCode::invalid_argument,
                "an alignment of 0 cannot be expressed");
  }

  TEST_CASE("lists, dicts and objects that hold themselves") {
    CheckpointWriter writer;
    ValueBuilder& build = writer.values();
    const Value list = build.list({});
    const Value dict = build.dict({});
    const Value object =
        build.object({.callable = build.global("m", "C"), .arguments = build.tuple({})});
    build.fill(list, {.elements = std::array{dict, object}});
    build.fill(dict, {.items = std::array{build.string("all"), list}});
    build.fill(object, {.elements = std::array{list},
                        .items = std::array{build.string("k"), list},
                        .state = build.tuple(std::array{object})});
    TemporaryFolder folder;
    REQUIRE_OK(std::move(writer).write(list, folder.path() / "model.pt"));
    const auto again = Checkpoint::open(folder.path() / "model.pt");
    REQUIRE_OK(again);
    const Value root = again->root();
    REQUIRE(root.size() == 2);
    CHECK(root[0].find("all")->is_same_as(root));
    CHECK((*root[1].elements().begin()).is_same_as(root));
    CHECK(root[1].state().value()[0].is_same_as(root[1]));
  }

  TEST_CASE("refuses values that nest too deep") {
    CheckpointWriter writer;
    Value value;
    for (int i = 0; i < 1001; ++i) value = writer.values().list(std::array{value});
    CHECK_FAILS(writer.values().check(), ErrorCode::limit_exceeded, "nests deeper than 1000");
    CHECK_FAILS(writer.plan(value, "model.pt"), ErrorCode::limit_exceeded,
                "nests deeper than 1000");
  }

  TEST_CASE_FIXTURE(Target, "a view in the other byte order is written in this machine's") {
    const Checkpoint big = opened(data / "big_endian.pt");
    for (const NamedTensor& tensor : big.tensors()) {
      INFO(tensor.name);
      CheckpointWriter writer;
      const Value made = writer.tensor(tensor.view).value();
      REQUIRE_OK(std::move(writer).write(made, path));
      std::vector<std::byte> expected(tensor.view.nbytes());
      REQUIRE_OK(tensor.view.gather(expected));
      const Checkpoint one = opened(path);
      CHECK(std::ranges::equal(one.tensors()[0].view.bytes(), expected));
    }
  }

  TEST_CASE("refuses a view whose stored values are not its own") {
    const Checkpoint lazy = opened(data / "conjugate.pt");
    for (const NamedTensor& tensor : lazy.tensors()) {
      if (!tensor.view.is_conjugate()) continue;
      CheckpointWriter writer;
      CHECK_FAILS(writer.tensor(tensor.view), ErrorCode::unsupported, "conjugate");
    }
  }
}

}  // namespace
}  // namespace weightmap
