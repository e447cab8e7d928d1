#include "runtime/formats/dcp/assemble.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/boxes.hpp"

namespace weightmap::dcp {
namespace {

using catalog::CatalogBuilder;
using catalog::Entry;

BoxRef box_of(const PlacedChunk& chunk) noexcept { return {chunk.offsets, chunk.sizes}; }

Error about(const Whole& tensor, Error error) {
  error.message.insert(0, "tensor " + bytes::quote(tensor.name) + " ");
  return error;
}

// Replaces the pieces of an empty tensor, which may be smaller along other dimensions, by a single
// one with the full shape.
void make_whole(Whole& tensor) {
  PlacedChunk chunk = std::move(tensor.chunks.front());
  chunk.offsets = {};  // of the only chunk nobody asks
  chunk.sizes = tensor.sizes;
  chunk.strides.resize(tensor.sizes.size());
  chunk.storage_offset = 0;
  static_cast<void>(bytes::row_major_strides(tensor.sizes, chunk.strides));
  tensor.chunks = {std::move(chunk)};
}

// Sorts the pieces and drops empty ones, except one of an empty tensor.
Result<void> prepare(Whole& tensor, Comparisons& comparisons) {
  std::vector<BoxRef> boxes;
  boxes.reserve(tensor.chunks.size());
  for (const PlacedChunk& chunk : tensor.chunks) boxes.push_back(box_of(chunk));
  if (Result<void> whole = check_boxes(tensor.sizes, boxes, comparisons); !whole)
    return tl::unexpected<Error>(about(tensor, std::move(whole.error())));
  std::ranges::stable_sort(tensor.chunks, [](const PlacedChunk& a, const PlacedChunk& b) {
    return std::ranges::lexicographical_compare(a.offsets, b.offsets);
  });
  const bool is_empty = BoxRef{{}, tensor.sizes}.is_empty();
  if (is_empty) {
    if (tensor.chunks.empty())
      return tl::unexpected<Error>(about(
          tensor, {ErrorCode::corrupt, "is empty and in none of the files", Error::no_offset, {}}));
    make_whole(tensor);
  } else {
    std::erase_if(tensor.chunks, [](const PlacedChunk& chunk) { return box_of(chunk).is_empty(); });
  }
  return {};
}

void append(std::int64_t number, std::string& text) {
  std::array<char, std::numeric_limits<std::int64_t>::digits10 + 2> digits;
  text.append(digits.data(),
              std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

// The name of a piece ends with "[0:3, 2:4]", Python's spelling of it; that of the only one is the
// tensor's. `text` is used again from name to name.
void spell_name(const Whole& tensor, const PlacedChunk& chunk, std::string& text) {
  text = tensor.name;
  if (tensor.chunks.size() == 1) return;
  text += '[';
  for (std::size_t dim = 0; dim < chunk.sizes.size(); ++dim) {
    if (dim != 0) text += ", ";
    append(chunk.offsets[dim], text);
    text += ':';
    append(chunk.offsets[dim] + chunk.sizes[dim], text);
  }
  text += ']';
}

// The parts of a path, if they make up the name.
struct PathTexts {
  std::vector<std::pair<std::string, bool>> parts;  // with a flag for integers

  explicit PathTexts(const Whole& tensor) {
    if (!tensor.path) return;
    std::string joined;
    for (const Value& key : tensor.path->elements()) {
      const std::optional<std::int64_t> number = key.integer();
      const std::optional<std::string_view> text = key.string();
      const bool is_too_long = text && text->size() > tensor.name.size();
      if ((!number && !text) || is_too_long || joined.size() > tensor.name.size()) {
        parts.clear();
        return;
      }
      parts.emplace_back(number ? std::to_string(*number) : std::string(*text), number.has_value());
      joined += (parts.size() == 1 ? "" : ".") + parts.back().first;
    }
    const bool is_name_alone = parts.size() == 1 && !parts.front().second;
    if (joined != tensor.name || is_name_alone) parts.clear();
  }
};

class Assembly {
 public:
  Assembly(const catalog::Counts& counts, std::pmr::memory_resource& memory)
      : builder_(counts, memory) {
    builder_.add_location("cpu");
    dims_.reserve(counts.dims);
  }

  Result<void> add(const Whole& tensor, format::Parsed& parsed) {
    if (tensor.chunks.size() == 1) return add_chunk(tensor, tensor.chunks.front());
    ComposedTensor whole;
    whole.name = tensor.name;
    whole.form = ComposedTensor::Form::chunked;
    whole.dtype = tensor.dtype;
    whole.sizes = tensor.sizes;
    whole.requires_grad = tensor.requires_grad;
    whole.first_part = added_;
    whole.part_count = tensor.chunks.size();
    for (const PlacedChunk& chunk : tensor.chunks) {
      whole.offsets.insert(whole.offsets.end(), chunk.offsets.begin(), chunk.offsets.end());
      TRY(add_chunk(tensor, chunk));
    }
    parsed.composed.push_back(std::move(whole));
    return {};
  }

  catalog::Catalog finish() && { return std::move(builder_).finish(); }
  Result<catalog::Catalog> finish(std::span<const Whole> tensors) && {
    if (builder_.has_ambiguous_names()) return refuse_repeated(tensors);
    catalog::Catalog catalog = std::move(*this).finish();
    for (const Whole& tensor : tensors)
      if (tensor.chunks.size() > 1 && catalog.find(tensor.name) != catalog::Catalog::none)
        return refuse_repeated({&tensor, 1});
    return catalog;
  }

  Result<void> add_chunk(const Whole& tensor, const PlacedChunk& chunk) {
    spell_name(tensor, chunk, name_);
    const catalog::Text name = builder_.add_text(name_);
    builder_.add_storage(name, chunk.storage_position, chunk.storage_bytes, chunk.crc32,
                         chunk.source);
    const std::int64_t* const dims = dims_.data() + dims_.size();
    dims_.insert(dims_.end(), chunk.sizes.begin(), chunk.sizes.end());
    dims_.insert(dims_.end(), chunk.strides.begin(), chunk.strides.end());
    const unsigned grad = tensor.requires_grad ? unsigned{Entry::requires_grad} : 0;
    const catalog::TensorInput input{
        name,
        tensor.chunks.size() == 1 ? path_of(tensor) : catalog::Path{catalog::Path::is_name, 1},
        dims,
        chunk.storage_offset,
        added_,
        0,
        tensor.dtype,
        static_cast<std::uint8_t>(chunk.sizes.size()),
        static_cast<std::uint8_t>(chunk.flags | grad)};
    if (!builder_.add_tensor(input))
      return tl::unexpected<Error>(
          about(tensor, {ErrorCode::corrupt, builder_.explain(input), Error::no_offset, {}}));
    ++added_;
    return {};
  }

 private:
  catalog::Path path_of(const Whole& tensor) {
    const PathTexts texts(tensor);
    if (texts.parts.empty()) return {catalog::Path::is_name, 1};
    const catalog::Path path{builder_.path_position(),
                             static_cast<std::uint32_t>(texts.parts.size())};
    for (const auto& [text, is_integer] : texts.parts)
      builder_.add_path_part(static_cast<std::uint32_t>(text.size()), is_integer);
    return path;
  }

  static tl::unexpected<Error> refuse_repeated(std::span<const Whole> tensors) {
    // A tensor's name may equal that of a piece of another tensor.
    std::string names;
    for (const Whole& tensor : tensors)
      if (tensor.name.ends_with(']')) names = bytes::quote(tensor.name);
    return failure(ErrorCode::corrupt,
                   "a tensor is called as a piece of another, which reads " + names);
  }

  CatalogBuilder builder_;
  std::vector<std::int64_t> dims_;  // of all pieces; never moves
  std::string name_;                // of the last piece
  std::uint32_t added_ = 0;
};

// Compares the tables with the pickle, whose texts and tuples may be used many times.
bool is_out_of_proportion(const catalog::Counts& counts, const Limits& limits,
                          std::uint64_t pickle_bytes) {
  const std::uint64_t bytes =
      counts.string_bytes + sizeof(std::int64_t) * (counts.dims + counts.path_parts);
  return bytes > limits.base_memory + 4 * pickle_bytes;
}

Result<catalog::Counts> count(std::span<const Whole> tensors, const Limits& limits,
                              std::uint64_t pickle_bytes) {
  catalog::Counts counts;
  counts.locations = 1;
  counts.string_bytes = 3;
  std::string name;
  for (const Whole& tensor : tensors) {
    counts.tensors += tensor.chunks.size();
    counts.dims += 2 * tensor.sizes.size() * tensor.chunks.size();
    if (tensor.path) counts.path_parts += tensor.path->size();
    for (const PlacedChunk& chunk : tensor.chunks) {
      spell_name(tensor, chunk, name);
      counts.string_bytes += name.size();
    }
  }
  counts.storages = counts.tensors;
  if (counts.tensors > limits.tensors)
    return failure(ErrorCode::limit_exceeded, "there are " + std::to_string(counts.tensors) +
                                                  " chunks, the limit is " +
                                                  std::to_string(limits.tensors));
  TRY(catalog::check_counts(counts));
  if (is_out_of_proportion(counts, limits, pickle_bytes))
    return failure(ErrorCode::limit_exceeded,
                   "the names and shapes of the chunks need more memory than the limit of " +
                       std::to_string(limits.base_memory) + " bytes and four times the metadata");
  return counts;
}

}  // namespace

Result<catalog::Catalog> place_piece(Whole& tensor, std::pmr::memory_resource& memory) {
  if (BoxRef{{}, tensor.sizes}.is_empty()) make_whole(tensor);
  catalog::Counts counts;
  counts.tensors = counts.storages = counts.locations = 1;
  counts.dims = 2 * tensor.sizes.size();
  counts.string_bytes = tensor.name.size() + 3;
  Assembly assembly(counts, memory);
  TRY(assembly.add_chunk(tensor, tensor.chunks.front()));
  return std::move(assembly).finish();
}

Result<void> assemble(std::vector<Whole>& tensors, std::uint64_t pickle_bytes,
                      const OpenOptions& options, std::pmr::memory_resource& memory,
                      format::Parsed& parsed) {
  Comparisons comparisons;
  for (Whole& tensor : tensors) TRY(prepare(tensor, comparisons));
  TRY_ASSIGN(const catalog::Counts counts, count(tensors, options.limits, pickle_bytes));
  Assembly assembly(counts, memory);
  for (const Whole& tensor : tensors) TRY(assembly.add(tensor, parsed));
  TRY_ASSIGN(parsed.catalog, std::move(assembly).finish(tensors));
  for (const ComposedTensor& composed : parsed.composed)
    parsed.chunked.emplace(composed.name, static_cast<std::uint32_t>(parsed.chunked.size()));
  return {};
}

}  // namespace weightmap::dcp
