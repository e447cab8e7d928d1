// Writes a checkpoint in each way that CheckpointWriter knows, for other readers to read:
//
//   write_variants FOLDER
//
// All hold {"0": .., "1": .., ..} of float32 tensors: tensor k of sizes[k] elements, which are
// k * 1000, k * 1000 + 1 ...; the last is a transposed view. huge.pt differs: see below.
#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/services/write/flat_tensor.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::size_t, 4> sizes{5, 0, 1000, 900'000};  // the last is above 2 MiB

std::vector<float> elements_of(std::size_t k) {
  std::vector<float> elements(sizes[k]);
  std::iota(elements.begin(), elements.end(), static_cast<float>(k * 1000));
  return elements;
}

// `content` makes that of the storage of tensor k.
template <class Content>
Result<WritePlan> write(const fs::path& path, const CheckpointWriterOptions& options,
                        const Content& content) {
  CheckpointWriter writer(options);
  std::vector<Value> items;
  const auto add = [&](Value tensor) {
    items.push_back(writer.values().string(std::to_string(items.size() / 2)));
    items.push_back(std::move(tensor));
  };
  for (std::size_t k = 0; k < sizes.size(); ++k) add(test::flat_tensor(writer, content(k)));
  const std::array<std::int64_t, 2> size{10, 100};
  const std::array<std::int64_t, 2> transposed{1, 10};
  add(writer.tensor(2, {.sizes = size, .strides = transposed}));
  const Value root = writer.values().dict(items);
  return std::move(writer).write(root, path);
}

Result<void> fill_and_seal(const fs::path& path, const std::vector<std::vector<float>>& elements) {
  Result<CheckpointFill> fill = CheckpointFill::open(path);
  if (!fill) return tl::unexpected<Error>(fill.error());
  for (const std::size_t k : {3u, 2u, 0u})
    if (auto ok = fill->write(std::to_string(k), std::as_bytes(std::span(elements[k]))); !ok)
      return ok;
  return fill->seal();
}

// Tensors beyond 4 GiB that take no space: a small one, one of 5 GiB and a small one, which is
// filled in; none is sealed.
Result<void> write_huge(const fs::path& path) {
  CheckpointWriter writer({.archive_name = "huge"});
  std::vector<Value> tensors;
  for (const std::uint64_t size : {std::uint64_t{10}, std::uint64_t{5} << 30, std::uint64_t{10}})
    tensors.push_back(test::flat_tensor(writer, RecordContent::reserved(size), DType::uint8));
  const Value root = writer.values().list(tensors);
  if (auto written = std::move(writer).write(root, path); !written)
    return tl::unexpected<Error>(written.error());
  const Result<CheckpointFill> fill = CheckpointFill::open(path);
  if (!fill) return tl::unexpected<Error>(fill.error());
  return fill->write("2", std::vector<std::byte>(10, std::byte{7}));
}

bool report(const fs::path& path, const Result<void>& result) {
  if (!result) std::cerr << path.string() << ": " << to_string(result.error()) << "\n";
  return result.has_value();
}

int run(const fs::path& folder) {
  std::vector<std::vector<float>> elements;
  for (std::size_t k = 0; k < sizes.size(); ++k) elements.push_back(elements_of(k));
  const auto filled = [&](std::size_t k) {
    return RecordContent::bytes(std::as_bytes(std::span(elements[k])));
  };
  const std::vector<std::pair<const char*, CheckpointWriterOptions>> variants{
      {"plain.pt", {}},
      {"unaligned.pt", {.alignment = 1}},
      {"align4096.pt", {.alignment = 4096}},
      {"align65504.pt", {.alignment = 65504}},
      {"align2m.pt", {.alignment = 2 << 20}},
      {"order.pt", {.order = {3, 1, 0, 2}}},
      {"align2m_order.pt", {.alignment = 2 << 20, .order = {2, 3, 1, 0}}},
      {"no_crc.pt", {.crc32 = false}}};
  bool ok = true;
  for (const auto& [name, options] : variants)
    ok = report(folder / name, write(folder / name, options, filled).map([](const auto&) {})) && ok;
  const fs::path sealed = folder / "sealed.pt";
  const auto reserved = [](std::size_t k) { return RecordContent::reserved(sizes[k] * 4); };
  ok = report(sealed, write(sealed, {}, reserved).map([](const auto&) {})) &&
       report(sealed, fill_and_seal(sealed, elements)) && ok;
  return report(folder / "huge.pt", write_huge(folder / "huge.pt")) && ok ? 0 : 1;
}

}  // namespace
}  // namespace weightmap

int main(int count, char** arguments) {
  if (count != 2) return 2;
  return weightmap::run(arguments[1]);
}
