#include "runtime/formats/safetensors/parse_safetensors.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/bytes/row_major.hpp"
#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/formats/safetensors/element_types.hpp"

namespace weightmap::safetensors {
namespace {

using catalog::Catalog;
using format::Parsed;
using Clock = std::chrono::steady_clock;

class HeaderParser {
 public:
  HeaderParser(Header& header, std::uint64_t data_bytes, const Limits& limits,
               std::pmr::memory_resource& memory)
      : header_(header),
        json_(header.json),
        data_bytes_(data_bytes),
        limits_(limits),
        // Values that are neither tensors nor metadata are parsed and dropped.
        build_(memory, {limits.base_memory + 5 * json_.text().size(), limits.depth}) {}

  Result<void> run() {
    constexpr std::size_t usual_bytes = 96;  // of a tensor
    header_.tensors.reserve(json_.text().size() / usual_bytes + 1);
    header_.dims.reserve(4 * header_.tensors.capacity());
    std::string_view name;
    if (json_.enter_object())
      while (json_.next_key(name)) TRY(name == metadata_key ? read_metadata() : read_tensor(name));
    if (!json_.end()) return not_json();
    TRY(check_layout());
    TRY_ASSIGN(header_.metadata, std::move(build_).finish(metadata_));
    return {};
  }

 private:
  static constexpr std::string_view metadata_key = "__metadata__";
  static constexpr std::size_t most_rank = 255;  // the catalog's maximum

  // A model has few types and shapes. So the beginning of a tensor, "dtype":"F32","shape":[4,4], is
  // compared with recent ones, which takes half the time of parsing it.
  struct Known {
    std::string_view text;
    const ElementType* type;
    HeaderTensor tensor;
  };
  // The fields of a tensor in the header.
  struct Info {
    std::string_view text;         // the text to remember it by; empty: none
    const Known* known = nullptr;  // with the same text
    const ElementType* type = nullptr;
    bool has_shape = false;
    bool has_offsets = false;
  };

  Result<void> read_metadata();
  Result<void> read_tensor(std::string_view name);
  Known& place_of(std::string_view text) noexcept;
  void take_known(HeaderTensor& tensor, Info& info) noexcept;
  Result<void> read_field(std::string_view field, HeaderTensor& tensor, Info& info);
  Result<void> read_type(Info& info);
  Result<void> read_shape();
  Result<void> read_offsets(HeaderTensor& tensor);
  bool has_rows_of_whole_bytes(const ElementType& type) const noexcept;
  Result<void> complete(HeaderTensor& tensor, const Info& info);
  Result<void> check_bytes(const HeaderTensor& tensor, const ElementType& type) const;
  Result<void> check_layout();

  // Returns the reader's error, about the current tensor if any. `field` is its field, with a
  // colon.
  [[gnu::cold]] tl::unexpected<Error> not_json(const std::string& field = {}) const {
    return failure(ErrorCode::corrupt,
                   subject() + (tensor_ ? ": " : " ") + field + json_.error().message,
                   json_.error().file_offset);
  }
  // Returns an error about the last token, with the current tensor.
  [[gnu::cold]] tl::unexpected<Error> refuse(const std::string& why,
                                             ErrorCode code = ErrorCode::corrupt) const {
    return failure(code, subject() + " has " + why, json_.position());
  }
  std::string subject() const {
    return tensor_ ? "tensor " + bytes::quote(tensor_->name) : "the header";
  }
  [[gnu::cold]] static tl::unexpected<Error> corrupt(const HeaderTensor& tensor,
                                                     const std::string& why) {
    return failure(ErrorCode::corrupt, "tensor " + bytes::quote(tensor.name) + why,
                   tensor.position);
  }
  static std::string offsets_of(const HeaderTensor& tensor) {
    return ": data_offsets [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) +
           "]";
  }

  Header& header_;
  json::TokenReader& json_;
  std::uint64_t data_bytes_;
  const Limits& limits_;
  value::Builder build_;
  value::Cell metadata_ = build_.dict({});
  bool has_metadata_ = false;
  const HeaderTensor* tensor_ = nullptr;  // the current tensor
  std::vector<std::int64_t> sizes_;       // of the current tensor
  std::size_t most_dims_ = std::min<std::size_t>(limits_.rank, most_rank);
  std::array<Known, 64> known_{};
};

// null means no metadata.
Result<void> HeaderParser::read_metadata() {
  if (std::exchange(has_metadata_, true)) return refuse("__metadata__ twice");
  if (json_.next() == json::TokenReader::Next::null) {
    json_.null();
    return {};
  }
  Result<value::Cell> read = json::add_strings(build_, json_);
  if (!read) {
    read.error().message.insert(0, "__metadata__: ");
    return tl::unexpected<Error>(std::move(read.error()));
  }
  metadata_ = *read;
  return {};
}

Result<void> HeaderParser::read_tensor(std::string_view name) {
  if (header_.tensors.size() == limits_.tensors)
    return failure(ErrorCode::limit_exceeded,
                   "the file has more than " + std::to_string(limits_.tensors) +
                       " tensors, which is the limit",
                   json_.position());
  HeaderTensor tensor{};
  tensor.name = name;
  tensor.position = json_.position();
  tensor_ = &tensor;
  Info info;
  std::string_view field;
  if (json_.enter_object()) {
    take_known(tensor, info);
    while (json_.next_key(field)) TRY(read_field(field, tensor, info));
  }
  if (json_.failed()) return not_json();
  TRY(complete(tensor, info));
  tensor_ = nullptr;
  header_.tensors.push_back(tensor);
  return {};
}

HeaderParser::Known& HeaderParser::place_of(std::string_view text) noexcept {
  std::uint64_t last = 0;
  const std::size_t count = std::min(text.size(), sizeof last);
  std::memcpy(&last, text.data() + text.size() - count, count);
  return known_[(last + text.size()) * 0x9E3779B97F4A7C15 >> 58];
}

// Called behind the opening brace. If the shape is known, it is the first array.
void HeaderParser::take_known(HeaderTensor& tensor, Info& info) noexcept {
  info.text = json_.rest();
  const std::string_view text = info.text.substr(0, info.text.find(']') + 1);
  const Known& known = place_of(text);
  if (text.empty() || known.text != text) return;
  json_.skip_items(text.size());
  info = {{}, &known, known.type, true, false};
  tensor.first_dim = known.tensor.first_dim;
  tensor.dtype = known.tensor.dtype;
  tensor.rank = known.tensor.rank;
  tensor.is_viewable = known.tensor.is_viewable;
}

Result<void> HeaderParser::read_field(std::string_view field, HeaderTensor& tensor, Info& info) {
  if (field == "dtype") {
    if (info.type != nullptr) return refuse("dtype twice");
    return read_type(info);
  }
  if (field == "shape") {
    if (std::exchange(info.has_shape, true)) return refuse("shape twice");
    TRY(read_shape());
    const bool is_usual = info.type != nullptr && !info.has_offsets;
    info.text = info.text.substr(0, is_usual ? info.text.size() - json_.rest().size() : 0);
    return {};
  }
  if (field == "data_offsets") {
    if (std::exchange(info.has_offsets, true)) return refuse("data_offsets twice");
    return read_offsets(tensor);
  }
  const Result<value::Cell> unknown = json::add_value(build_, json_);
  if (json_.failed()) return not_json(bytes::quote(field) + ": ");
  if (!unknown) return tl::unexpected<Error>(unknown.error());
  return {};
}

Result<void> HeaderParser::read_type(Info& info) {
  std::string_view name;
  if (!json_.string(name)) return not_json("dtype: ");
  info.type = type_of(name);
  if (info.type != nullptr) return {};
  return refuse("the dtype " + bytes::quote(name) + ", which safetensors does not know");
}

Result<void> HeaderParser::read_shape() {
  if (json_.enter_array())
    while (json_.next_element()) {
      std::uint64_t size = 0;
      if (!json_.natural(size)) break;
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return refuse("the size " + std::to_string(size) + ", which is larger than 2^63 - 1");
      if (sizes_.size() == most_dims_)
        return refuse("more than " + std::to_string(most_dims_) + " dimensions, which is the limit",
                      ErrorCode::limit_exceeded);
      sizes_.push_back(static_cast<std::int64_t>(size));
    }
  if (json_.failed()) return not_json("shape: ");
  return {};
}

Result<void> HeaderParser::read_offsets(HeaderTensor& tensor) {
  std::size_t count = 0;
  std::size_t begin = 0;
  if (json_.enter_array()) {
    begin = json_.position();
    while (json_.next_element()) {
      std::uint64_t offset = 0;
      if (!json_.natural(offset)) break;
      (count == 0 ? tensor.begin : tensor.end) = offset;
      ++count;
    }
  }
  if (json_.failed()) return not_json("data_offsets: ");
  if (count != 2)
    return failure(ErrorCode::corrupt,
                   "tensor " + bytes::quote(tensor.name) + " has " +
                       bytes::counted(count, "data_offset") + ", expected 2",
                   begin);
  return {};
}

// Checks types whose elements are not bytes. A tensor may have whole bytes in all although its rows
// do not; then a part of it cannot be viewed.
bool HeaderParser::has_rows_of_whole_bytes(const ElementType& type) const noexcept {
  const std::int64_t together = type.bits == 4 ? 2 : block_of(type.dtype).elements;
  return together == 1 || (!sizes_.empty() && sizes_.back() % together == 0);
}

// Called after all fields.
Result<void> HeaderParser::complete(HeaderTensor& tensor, const Info& info) {
  if (info.type == nullptr) return corrupt(tensor, " has no dtype");
  if (!info.has_shape) return corrupt(tensor, " has no shape");
  if (!info.has_offsets) return corrupt(tensor, " has no data_offsets");
  if (info.known != nullptr) {
    const HeaderTensor& known = info.known->tensor;
    if (tensor.begin <= tensor.end && tensor.end - tensor.begin == known.end - known.begin)
      return {};
    const auto sizes = header_.dims.begin() + known.first_dim;
    sizes_.assign(sizes, sizes + known.rank);
  }
  TRY(check_bytes(tensor, *info.type));
  tensor.dtype = info.type->dtype;
  tensor.is_viewable = has_rows_of_whole_bytes(*info.type);
  if (info.type->bits == 4 && tensor.is_viewable) sizes_.back() /= 2;
  const std::size_t rank = sizes_.size();
  std::array<std::int64_t, most_rank> strides;
  if (!bytes::row_major_strides(sizes_, std::span(strides).first(rank)))
    return corrupt(tensor, " has strides of more than 63 bits: shape " + bytes::listed(sizes_));
  std::pmr::vector<std::int64_t>& dims = header_.dims;
  // The catalog stores them again.
  const std::uint64_t most_bytes = limits_.base_memory + 4 * json_.text().size();
  if (2 * sizeof(std::int64_t) * (dims.size() + 2 * rank) > most_bytes)
    return failure(ErrorCode::limit_exceeded,
                   "the shapes of the tensors need more than the limit of " +
                       bytes::counted(most_bytes, "byte"),
                   tensor.position);
  tensor.first_dim = static_cast<std::uint32_t>(dims.size());
  tensor.rank = static_cast<std::uint8_t>(rank);
  dims.insert(dims.end(), sizes_.begin(), sizes_.end());
  dims.insert(dims.end(), strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(rank));
  sizes_.clear();
  const bool has_shown_sizes = info.type->bits % 8 == 0;
  if (has_shown_sizes && !info.text.empty()) place_of(info.text) = {info.text, info.type, tensor};
  return {};
}

Result<void> HeaderParser::check_bytes(const HeaderTensor& tensor, const ElementType& type) const {
  std::uint64_t bits = type.bits;
  bool fits = true;
  for (const std::int64_t size : sizes_)
    fits = fits && bytes::checked_mul(bits, static_cast<std::uint64_t>(size), &bits);
  if (fits && bits % 8 == 0 && tensor.begin <= tensor.end && tensor.end - tensor.begin == bits / 8)
    return {};
  const std::string is = " of " + std::string(type.name) + " and shape " + bytes::listed(sizes_);
  if (!fits) return corrupt(tensor, is + " has more than 2^64 - 1 bits");
  if (bits % 8 != 0)
    return corrupt(tensor, is + " has " + std::to_string(bits) + " bits, which are no whole bytes");
  return corrupt(tensor, is + " needs " + bytes::counted(bits / 8, "byte") + offsets_of(tensor));
}

Result<void> HeaderParser::check_layout() {
  std::pmr::vector<HeaderTensor>& tensors = header_.tensors;
  const auto place = [](const HeaderTensor& tensor) { return std::pair(tensor.begin, tensor.end); };
  if (!std::ranges::is_sorted(tensors, {}, place)) std::ranges::stable_sort(tensors, {}, place);
  std::uint64_t end = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (tensor.begin != end)
      return corrupt(tensor, offsets_of(tensor) + ", expected to begin at " + std::to_string(end) +
                                 ", where the tensor before it ends");
    end = tensor.end;
  }
  if (end == data_bytes_) return {};
  const std::string sizes = "the tensors have " + bytes::counted(end, "byte") +
                            " by the header, and there are " + std::to_string(data_bytes_) +
                            " behind it";
  return failure(ErrorCode::corrupt,
                 end < data_bytes_
                     ? sizes
                     : "is truncated: " + sizes + "; the download or copy is incomplete");
}

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;

bool is_printable(std::byte byte) noexcept {
  return byte == std::byte{'\n'} || (byte >= std::byte{' '} && byte <= std::byte{'~'});
}

// Returns the end of the header.
Result<std::uint64_t> header_end(format::Input& input, const Limits& limits) {
  const std::uint64_t size = input.file->size();
  // The first read also covers the beginning of the header, which is all of it in most files.
  TRY_ASSIGN(const std::span<const std::byte> head,
             input.cache->bytes(0, std::min(size, input.first_bytes)));
  if (head.size() < length_bytes)
    return failure(ErrorCode::corrupt,
                   "is too short for a safetensors file: it has " + bytes::counted(size, "byte"));
  const auto length = bytes::load_le<std::uint64_t>(head.data());
  if (std::ranges::all_of(head.first(length_bytes), is_printable))
    return failure(ErrorCode::not_a_checkpoint,
                   "begins as text, " +
                       bytes::quote({reinterpret_cast<const char*>(head.data()), head.size()}, 40) +
                       ", and not as a safetensors file");
  const std::string header = "the header of " + bytes::counted(length, "byte");
  if (length > longest_header)
    return failure(ErrorCode::corrupt,
                   header + " is longer than the 100000000 that the format allows", 0);
  if (length > limits.pickle_bytes)
    return failure(ErrorCode::limit_exceeded,
                   header + " is longer than the limit of " + std::to_string(limits.pickle_bytes),
                   0);
  if (!bytes::contains(size, length_bytes, length))
    return failure(ErrorCode::corrupt,
                   "is truncated: " + header + " leaves the file of " + std::to_string(size) +
                       "; the download or copy is incomplete",
                   0);
  return length_bytes + length;
}

// Translates a position in the header to one in the file.
tl::unexpected<Error> in_file(Error error) {
  if (error.file_offset != Error::no_offset) error.file_offset += length_bytes;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Result<void> read_header(Header& header, std::uint64_t data_bytes, const Limits& limits,
                         std::pmr::memory_resource& memory) {
  return HeaderParser(header, data_bytes, limits, memory).run();
}

Result<Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                     std::pmr::memory_resource& memory) {
  const Clock::time_point began = Clock::now();
  TRY_ASSIGN(const std::uint64_t data_begin, header_end(input, options.limits));
  TRY_ASSIGN(const std::span<const std::byte> text,
             input.cache->bytes(length_bytes, data_begin - length_bytes));
  const Clock::time_point was_read = Clock::now();
  Header header({reinterpret_cast<const char*>(text.data()), text.size()}, memory);
  Result<void> read = read_header(header, input.file->size() - data_begin, options.limits, memory);
  if (!read) return in_file(std::move(read.error()));
  const Clock::time_point was_parsed = Clock::now();
  Parsed parsed(memory);
  header.data_begin = data_begin;
  Result<Catalog> catalog = format::make_catalog(header, memory);
  if (!catalog) return in_file(std::move(catalog.error()));
  parsed.catalog = std::move(*catalog);
  parsed.tree = std::move(header.metadata);
  for (const HeaderTensor& tensor : header.tensors)
    if (!tensor.is_viewable) parsed.facts.unsupported.emplace_back(tensor.name);
  input.release(stats);
  parsed.facts.format = Format::safetensors;
  parsed.facts.byteorder = "little";
  parsed.facts.names_torch_safe_only = true;  // the file names no globals
  parsed.facts.storage_alignment = format::common_alignment(parsed.catalog);
  parsed.facts.pickle_bytes = text.size();
  stats.storages_by_directory += parsed.catalog.size();
  if (parsed.catalog.size() != 0) stats.strategy = OffsetStrategy::directory;
  stats.directory += was_read - began;
  stats.pickle += was_parsed - was_read;
  stats.catalog += Clock::now() - was_parsed;
  return parsed;
}

}  // namespace weightmap::safetensors
