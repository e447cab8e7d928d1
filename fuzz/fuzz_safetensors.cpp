// Parses any bytes as a safetensors file, any text as its header, and any text as an index of
// shards: refused, or the result equals that of another JSON reader.
//
// The first byte chooses: 0 a file, 1 a header, followed by a byte with the number of bytes more or
// fewer than it needs, 2 an index.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory_resource>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/json_mutator.hpp"
#include "fuzz/look.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/formats/safetensors/parse_safetensors.hpp"
#include "runtime/formats/sets/shard_index.hpp"

namespace {

using namespace weightmap;
using Json = nlohmann::json;

enum Mode : std::uint8_t { file, header, index, mode_count };

constexpr std::uint64_t length_bytes = 8;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void look_at(const value::Tree& tree) { fuzz::look_at(Value(&tree, tree.root())); }

Json json_of(std::string_view text) { return Json::parse(text, nullptr, false); }

// F4 counts single elements, which are two to a byte of the tensor.
std::vector<std::uint64_t> shape_in(const Json& tensor) {
  auto shape = tensor.at("shape").get<std::vector<std::uint64_t>>();
  if (tensor.at("dtype") == "F4") shape.back() /= 2;
  return shape;
}

void check_tensor(const safetensors::Header& header, const safetensors::HeaderTensor& tensor,
                  const Json& expected) {
  fuzz::require(expected.at("data_offsets") == Json({tensor.begin, tensor.end}),
                "a tensor has other offsets than the header says");
  fuzz::require(header.json.text()[tensor.position] == '"', "a tensor's position is none");
  if (!tensor.is_viewable) return;
  const std::int64_t* const dims = header.dims.data() + tensor.first_dim;
  fuzz::require(tensor.first_dim + 2u * tensor.rank <= header.dims.size(), "a shape is cut");
  fuzz::require(std::ranges::equal(std::span(dims, tensor.rank), shape_in(expected),
                                   [](std::int64_t size, std::uint64_t wanted) {
                                     return static_cast<std::uint64_t>(size) == wanted;
                                   }),
                "a tensor has another shape than the header says");
  std::uint64_t elements = 1;
  for (std::size_t i = tensor.rank; i-- > 0;) {
    fuzz::require(static_cast<std::uint64_t>(dims[tensor.rank + i]) == elements,
                  "a tensor is not contiguous");
    elements *= std::max<std::uint64_t>(1, static_cast<std::uint64_t>(dims[i]));
  }
}

// Uses another reader, in which the last of several equal keys wins.
void compare(const safetensors::Header& header, std::uint64_t data_bytes) {
  const Json expected = json_of(header.json.text());
  fuzz::require(expected.is_object(), "what is no JSON is taken for it");
  std::map<std::string_view, const safetensors::HeaderTensor*> last;
  std::uint64_t end = 0;
  for (const safetensors::HeaderTensor& tensor : header.tensors) {
    fuzz::require(tensor.begin == end && tensor.end >= end, "tensors do not follow one another");
    end = tensor.end;
    const auto [known, is_new] = last.emplace(tensor.name, &tensor);
    if (!is_new && known->second->position < tensor.position) known->second = &tensor;
  }
  fuzz::require(end == data_bytes, "the tensors do not end with the file");
  fuzz::require(last.size() + (expected.contains("__metadata__") ? 1 : 0) == expected.size(),
                "the header has other tensors");
  for (const auto& [name, tensor] : last)
    check_tensor(header, *tensor, expected.at(std::string(name)));
}

// Reads only the header, so that the tensors may be of any size.
void check_header(std::string_view text, std::uint64_t data_bytes, const Limits& limits) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  safetensors::Header header(text, memory);
  const Result<void> read = safetensors::read_header(header, data_bytes, limits, memory);
  if (!read) return fuzz::check_refusal(read.error(), text.size());
  compare(header, data_bytes);
  look_at(*header.metadata);
}

void check_file(std::span<const std::byte> content) {
  const OpenOptions options = fuzz::small_limits();
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  const bytes::MemorySource source(content);
  format::Input input(source, 0, content.size(), memory);
  OpenStats stats;
  const Result<format::Parsed> parsed = safetensors::parse(input, options, stats, memory);
  if (!parsed) return fuzz::check_refusal(parsed.error(), content.size());
  fuzz::check_catalog(parsed->catalog, content.size());
  look_at(*parsed->tree);
  const auto length = bytes::load_le<std::uint64_t>(content.data());
  check_header(text_of(content.subspan(length_bytes, length)),
               content.size() - length_bytes - length, options.limits);
}

// Returns the end of the last tensor by the header.
std::uint64_t end_in(std::string_view text) {
  const Json header = json_of(text);
  std::uint64_t end = 0;
  if (!header.is_object()) return end;
  for (const Json& tensor : header) {
    if (!tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const Json& offsets = tensor["data_offsets"];
    if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned())
      end = std::max(end, offsets[1].get<std::uint64_t>());
  }
  return end;
}

void check_with_header(std::span<const std::byte> input) {
  constexpr std::uint64_t most_laid_out = 4096;
  if (input.empty()) return;
  const auto more = static_cast<std::int8_t>(input[0]);
  const std::string_view text = text_of(input.subspan(1));
  const std::uint64_t data_bytes = end_in(text) + static_cast<std::uint64_t>(more);
  check_header(text, data_bytes, fuzz::small_limits().limits);
  if (data_bytes > most_laid_out) return;
  std::vector<std::byte> content;
  bytes::ByteSink(content).u64(text.size());
  bytes::ByteSink(content).text(text);
  content.resize(content.size() + data_bytes);
  check_file(content);
}

void check_name(const std::string& name) {
  const std::filesystem::path path(name);
  fuzz::require(!path.empty() && path.is_relative() && path.lexically_normal() == path &&
                    std::ranges::none_of(path, [](const auto& part) { return part == ".."; }),
                "an index leads to a file that is not below it");
}

void check_index(std::string_view text) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  sets::ShardIndex read(text);
  const Result<void> done = sets::read_shard_index(read, fuzz::small_limits().limits, memory);
  if (!done) return fuzz::check_refusal(done.error(), text.size());
  const Json whole = json_of(text);
  fuzz::require(whole.is_object(), "what is no JSON is taken for it");
  const Json& expected = whole.at("weight_map");
  fuzz::require(std::ranges::is_sorted(read.files), "the files are not sorted");
  fuzz::require(std::ranges::adjacent_find(read.files) == read.files.end(), "a file comes twice");
  for (const std::string& name : read.files) check_name(name);
  std::map<std::string_view, std::uint32_t> last;
  for (const sets::ShardIndex::Item& item : read.items) {
    fuzz::require(text[item.position] == '"', "a tensor's position is none");
    last[item.tensor] = item.file;
  }
  fuzz::require(last.size() == expected.size(), "the index has other tensors");
  for (const auto& [tensor, number] : last)
    fuzz::require(expected.at(std::string(tensor)) == read.files.at(number),
                  "a tensor is in another file than the index says");
  look_at(*read.metadata);
}

Mode mode_of(std::span<const std::byte> input) {
  return input.empty() ? file
                       : static_cast<Mode>(std::to_integer<std::uint8_t>(input[0]) % mode_count);
}

void check(std::span<const std::byte> input) {
  if (input.empty()) return;
  const std::span<const std::byte> rest = input.subspan(1);
  switch (mode_of(input)) {
    case file:
      return check_file(rest);
    case header:
      return check_with_header(rest);
    default:
      return check_index(text_of(rest));
  }
}

// Text usually stays JSON. A file is mutated as bytes.
std::vector<std::byte> mutate(std::span<const std::byte> input, fuzz::Random& random) {
  std::vector<std::byte> made(input.begin(), input.end());
  const Mode mode = mode_of(input);
  const std::size_t text_begin = mode == header ? 2 : 1;
  if (mode == file || made.size() <= text_begin || random.once_in(20)) {
    fuzz::mutate_bytes(made);
    return made;
  }
  std::string text(text_of(input.subspan(text_begin)));
  fuzz::mutate_json(text, random);
  if (mode == header && random.once_in(3)) made[1] = std::byte{0};
  made.resize(text_begin);
  bytes::ByteSink(made).text(text);
  return made;
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(mutate)
