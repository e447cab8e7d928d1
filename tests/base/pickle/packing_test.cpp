// Packed calls against the general machine on the same bytes.
#include "tests/base/pickle/packing.hpp"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "bench/model_shape.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/pickle/write.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/tensor_name.hpp"
#include "runtime/formats/torch/tree_walk.hpp"
#include "tests/base/pickle/tensor_pickle.hpp"
#include "tests/support/sanitizer.hpp"

using namespace weightmap;
using namespace weightmap::test;
using namespace std::string_literals;
using Packing = pickle::Machine::Packing;
using Tensor = TensorPickle::Tensor;

namespace {

// Every rank up to four, every width of an integer, storages that are larger than their tensor.
const std::vector<Tensor> shapes{
    {},
    {.sizes = {}, .strides = {}, .numel = 1},
    {.sizes = {7}, .strides = {1}, .numel = 7},
    {.sizes = {300}, .strides = {1}, .numel = 300},
    {.sizes = {4, 4}, .strides = {1, 4}, .numel = 16},
    {.sizes = {4, 4}, .strides = {4, 1}, .numel = 32, .offset = 16},
    {.sizes = {4, 4}, .strides = {4, 1}, .numel = 70000, .offset = 300},
    {.sizes = {4, 4}, .strides = {4, 1}, .numel = 70000, .offset = 69984},
    {.sizes = {300, 70000}, .strides = {70000, 1}, .numel = 21000000},
    {.sizes = {2, 3, 4}, .strides = {12, 4, 1}, .numel = 24},
    {.sizes = {2, 3, 3, 3}, .strides = {27, 9, 3, 1}, .numel = 54},
    {.sizes = {std::int64_t{1} << 40}, .strides = {1}, .numel = std::int64_t{1} << 40},
    {.sizes = {0, 4}, .strides = {4, 1}, .numel = 0},
    {.sizes = {4}, .strides = {4, 1}, .numel = 16},
    {.sizes = {-1}, .strides = {-1}, .numel = -16, .offset = -300},
    {.sizes = {1, 2, 3, 4, 5}, .strides = {70000, 70000, 70000, 70000, 70000}, .numel = 120},
    {.sizes = {1, 2, 3, 4, 5, 6, 7, 8}, .strides = {700, 700, 700, 700, 700, 700, 700, 700}},
};

std::string layer(std::size_t i) { return "layers." + std::to_string(i) + ".weight"; }

// Tensors whose memo ids have four bytes: all but the first are packed.
TensorPickle with_wide_ids() {
  TensorPickle pickle;
  pickle.add("first", "0").number_from(300).add("second", "1");
  return pickle;
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

// Everything that a catalog is made of, but for positions in the pickle: those of a packed call are
// the run's, those of others the last opcode's.
std::string tensors_of(const value::Tree& tree) {
  const Result<torch::TensorTable> read =
      torch::read_tensors(tree, {64, Limits()}, *std::pmr::new_delete_resource());
  if (!read) return read.error().message;
  std::string text;
  for (const torch::TensorSpec& spec : read->tensors) {
    text += torch::KeyText(tree, spec.key).text();
    for (const std::int64_t field :
         {std::int64_t{spec.path}, spec.storage_offset, std::int64_t{spec.storage},
          std::int64_t{spec.location}, std::int64_t{spec.flags}, std::int64_t{spec.rank}})
      text += ' ' + std::to_string(field);
    text += to_string(spec.dtype);
    for (int i = 0; i < 2 * spec.rank; ++i) text += ' ' + std::to_string(spec.dims[i]);
    text += '\n';
  }
  for (const zip::StorageRequest& storage : read->storages.storages())
    text += std::string(storage.key) + ' ' + std::to_string(storage.nbytes) +
            std::string(to_string(storage.dtype)) + '\n';
  return text + std::to_string(read->name_bytes) + ' ' + std::to_string(read->dim_count);
}

std::uint64_t same_tree_and_tensors(std::span<const std::byte> pickle) {
  const std::uint64_t packed_count = same_with_and_without_packing(pickle);
  const Run packed(pickle, Packing::on);
  const Run general(pickle, Packing::off);
  if (general.has_tree && !packed.must_repack) {
    const bool has_same_tensors = tensors_of(*packed.tree) == tensors_of(*general.tree);
    CHECK(has_same_tensors);
  }
  return packed_count;
}

std::uint64_t same_for_state_dict(const std::vector<bench::TensorShape>& tensors, DType dtype) {
  value::Builder build(*std::pmr::new_delete_resource(), {std::uint64_t{1} << 30, 1000});
  const value::Cell ordered_dict = build.global("collections", "OrderedDict");
  const value::PackedHeader* const header =
      build.packed_header({.ids = {},
                           .callable = build.global("torch._utils", "_rebuild_tensor_v2"),
                           .tag = build.string("storage"),
                           .type = build.global("torch", torch::storage_class(dtype)),
                           .location = build.string("cpu"),
                           .hooks_callable = ordered_dict,
                           .extra = {}});
  std::vector<value::Cell> items;
  for (const bench::TensorShape& tensor : tensors) {
    items.push_back(build.string(tensor.name));
    const value::Cell key = build.string(std::to_string(items.size() / 2));
    // Whether the strides are those of the sizes, nobody asks here.
    items.push_back(
        build.packed({header, key, numel(tensor), 0, tensor.shape, tensor.shape, false}).value());
  }
  const value::Cell root =
      build.object({.callable = ordered_dict, .arguments = build.tuple({}), .items = items});
  const std::unique_ptr<value::Tree> tree = std::move(build).finish(root).value();
  return same_tree_and_tensors(pickle::write({tree.get(), tree->root()}).value());
}

}  // namespace

TEST_CASE("packs nothing else than the general machine reads, in every test file") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(WEIGHTMAP_TEST_DATA)) {
    if (!entry.is_regular_file()) continue;
    INFO(entry.path().string());
    const std::vector<std::byte> content = bytes_of(entry.path());
    const bytes::MemorySource source(content);
    bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
    const Result<zip::Directory> directory = zip::Directory::read(cache, Limits().directory_bytes);
    if (!directory) continue;
    const zip::Record* record = directory->find(torch::pickle_record);
    if (record == nullptr) continue;
    const Result<zip::RecordBytes> pickle =
        zip::read_record(*directory, *record, cache, Limits().pickle_bytes);
    if (!pickle) continue;
    same_tree_and_tensors(pickle->bytes);
    ++files;
  }
  CHECK(files > 35);
}

TEST_CASE("gives the same tensors for state dicts as make_checkpoint writes them") {
  CHECK(same_for_state_dict(bench::uniform(1500, {4, 4}), DType::float32) > 1480);
  CHECK(same_for_state_dict(bench::uniform(400, {}), DType::float16) > 370);
  CHECK(same_for_state_dict(bench::uniform(400, {3, 300, 70000}), DType::boolean) > 370);
  CHECK(same_for_state_dict(bench::language_model({.layers = 40}), DType::bfloat16) > 300);
}

TEST_CASE("gives the same tree for shapes in turn, in blocks and in random order") {
  std::mt19937 random(7);
  for (int order = 0; order < 4; ++order) {
    INFO("order ", order);
    TensorPickle pickle;
    for (std::size_t i = 0; i < 400; ++i) {
      const std::array<std::size_t, 9> block{0, 0, 0, 0, 8, 8, 10, 3, 3};
      const std::size_t shape = order == 0   ? i % shapes.size()
                                : order == 1 ? block[i % block.size()]
                                : order == 2 ? random() % shapes.size()
                                             : (i / 50) % shapes.size();
      Tensor tensor = shapes[shape];
      tensor.requires_grad = random() % 4 == 0;
      if (i > 0 && random() % 10 == 0)
        tensor.key_get = pickle.get(pickle.keys[random() % pickle.keys.size()]);
      pickle.add(layer(i), std::to_string(i), tensor);
      if (random() % 20 == 0) pickle.raw(unicode("step") + pickle.put() + "K\x07");
    }
    CHECK(same_with_and_without_packing(pickle.finish()) == 399);
  }
}

TEST_CASE("gives the same tree for more shapes than are remembered") {
  TensorPickle pickle;
  for (std::size_t round = 0; round < 2; ++round)
    for (std::int64_t i = 0; i < 1300; ++i)
      pickle.add(layer(round * 2000 + static_cast<std::size_t>(i)), std::to_string(i),
                 {.sizes = {i, 3}, .strides = {3, 1}, .numel = 3 * i});
  CHECK(same_with_and_without_packing(pickle.finish()) == 2599);
}

TEST_CASE("gives the same tree where memo ids and keys grow longer") {
  // Of names and keys that take one to five bytes; ids that begin to have four bytes at each place
  // of a run.
  for (std::uint32_t id = 240; id < 270; ++id) {
    INFO("from id ", id);
    TensorPickle pickle;
    pickle.add("first", "0");
    pickle.raw("N" + pickle.number_from(id - 1).put() + unicode("ids"));
    for (std::size_t i = 0; i < 30; ++i) pickle.add(layer(i), std::to_string(i));
    CHECK(same_with_and_without_packing(pickle.finish()) == 30);
  }
  TensorPickle pickle = with_wide_ids();
  for (const std::size_t at : {8u, 98u, 998u, 9998u, 99998u})
    for (std::size_t i = at; i < at + 4; ++i) pickle.add(layer(i), std::to_string(i));
  for (const std::size_t length : {0u, 63u, 64u, 65u, 3u}) pickle.add("", std::string(length, '7'));
  CHECK(same_with_and_without_packing(pickle.finish()) == 25);
}

TEST_CASE("packs tensors of a list, which have no name of their own") {
  TensorPickle pickle = with_wide_ids();
  pickle.raw(unicode("list") + "](");
  for (int i = 2; i < 12; ++i) {
    Tensor tensor = shapes[i % 3 == 0 ? 2 : 0];
    tensor.is_named = false;
    tensor.requires_grad = i % 2 == 0;
    pickle.add("", std::to_string(i), tensor);
  }
  pickle.raw("e");
  for (int i = 12; i < 20; ++i) pickle.add(layer(static_cast<std::size_t>(i)), std::to_string(i));
  CHECK(same_with_and_without_packing(pickle.finish()) == 19);
}

TEST_CASE("writes a piece of a packed call that is used again as one object") {
  TensorPickle pickle;
  pickle.add("first", "0").add("second", "1");
  const std::uint32_t sizes = pickle.tensors.back() - 4;  // strides, hooks, arguments, the tensor
  pickle.raw(unicode("shape") + pickle.put() + pickle.get(sizes));
  const std::string text = pickle.finish();
  CHECK(same_tree_and_tensors(std::as_bytes(std::span(text))) == 1);
}

TEST_CASE("packs the tensors of two pickles, whose memo ids are those of each alone") {
  std::string pickles[2];
  for (std::string& text : pickles) {
    TensorPickle pickle = with_wide_ids();
    for (std::size_t i = 2; i < 10; ++i) pickle.add(layer(i), std::to_string(i));
    text = pickle.raw(unicode(std::string(TensorPickle::padding, 'p')) + "N").finish();
    text.resize(text.size() - TensorPickle::padding);
  }
  const std::string type = "FloatStorage";
  pickles[1].replace(pickles[1].find(type), type.size(), "ShortStorage");
  const std::string text = pickles[0] + "name" + pickles[1];
  const auto first = static_cast<std::uint32_t>(pickles[0].size());
  const auto all = static_cast<std::uint32_t>(text.size());
  const pickle::NamedPickle parts[] = {{first, 1, 0, first}, {first + 1, 3, first + 4, all}};
  CHECK(same_with_and_without_packing(std::as_bytes(std::span(text)), roomy, parts) == 18);
  const Run run(std::as_bytes(std::span(text)), Packing::on, roomy, parts);
  const Value root(run.tree.get(), run.tree->root());
  CHECK(root.find("n")->item_count() == root.find("ame")->item_count());
}

TEST_CASE("refuses packed tensors whose memo ids are larger than the pickle") {
  const auto pickle_with = [](std::uint32_t id) {
    TensorPickle pickle = with_wide_ids();
    pickle.raw("N" + pickle.number_from(id).put() + unicode("ids"));
    return pickle.add("third", "2").finish();
  };
  const auto size = static_cast<std::uint32_t>(pickle_with(1000).size());
  CHECK(same_with_and_without_packing(pickle_with(size - 9)) == 2);
  CHECK(same_with_and_without_packing(pickle_with(size - 8)) == 0);
  CHECK(same_with_and_without_packing(pickle_with(size - 2)) == 0);
}

TEST_CASE("refuses packed calls that torch does not make") {
  // What the memo has at id 200 is said in place of what torch says of the second tensor.
  const auto refusal = [](const std::string& global, auto change) {
    TensorPickle pickle;
    pickle.add("first", "0");
    pickle.raw(unicode("kept") + global + pickle.number_from(200).put());
    const std::string text = change(pickle);
    const auto bytes = std::as_bytes(std::span(text));
    CHECK(same_with_and_without_packing(bytes) == 1);
    return tensors_of(*Run(bytes, Packing::on).tree);
  };
  CHECK(refusal("ctorch\nfloat32\n", [](TensorPickle& pickle) {
          return pickle.add("second", "1", {.extra = pickle.get(200)}).finish();
        }) == "tensor \"second\": a tensor is rebuilt with an unknown dtype");
  CHECK(refusal("ccollections\ndeque\n", [](TensorPickle& pickle) {
          std::string text = pickle.add("second", "1").finish();
          const std::size_t call = text.rfind(")R");  // of the hooks, behind the GET of their type
          text[call - 1] = static_cast<char>(200);
          return text;
        }) == "tensor \"second\": a tensor's backward hooks name collections.deque");
}

TEST_SUITE("exhaustive") {
  TEST_CASE("gives the same tree or the same refusal for every value of every byte of a run") {
    TensorPickle pickle = with_wide_ids();
    pickle.add("b", "2", shapes[1]).add("c", "3");
    const std::size_t first = pickle.finish().size() - TensorPickle::padding - 2;
    pickle.add("d", "4", shapes[1]).add("e", "5");
    const std::string good = pickle.finish();
    REQUIRE(same_with_and_without_packing(good) == 5);
    std::size_t packed = 0;
    for (std::size_t at = first; at < good.size() - TensorPickle::padding; ++at) {
      // Under sanitizers a fifth of the values, another one at each byte.
      constexpr int step = under_sanitizer ? 5 : 1;
      for (int value = static_cast<int>(at % step); value < 256; value += step) {
        std::string bad = good;
        bad[at] = static_cast<char>(value);
        INFO("byte ", at, ", value ", value);
        packed += same_with_and_without_packing(bad);
      }
    }
    CHECK(packed > 0);
  }

  TEST_CASE("gives the same tree or the same refusal for every truncation") {
    TensorPickle pickle = with_wide_ids();
    for (std::size_t i = 2; i < 14; ++i) pickle.add(layer(i), std::to_string(i), shapes[i % 2]);
    const std::string good = pickle.finish();
    for (std::size_t length = 0; length < good.size(); ++length) {
      INFO("cut to ", length);
      same_with_and_without_packing(good.substr(0, length));
      same_with_and_without_packing(good.substr(0, length) + std::string(1100, '\0'));
      same_with_and_without_packing(good.substr(0, length) + std::string(1100, 'q'));
    }
  }
}
