#include "runtime/safetensors/header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/bytes/row_major.hpp"
#include "runtime/json/json_tree.hpp"
#include "runtime/safetensors/element_types.hpp"
#include "runtime/safetensors/known_shapes.hpp"
#include "runtime/value/builder.hpp"

namespace weightmap::safetensors {
namespace {

class HeaderParser {
 public:
  HeaderParser(Header& header, std::uint64_t data_bytes, const Limits& limits,
               std::pmr::memory_resource& memory)
      : header_(header),
        json_(header.json),
        data_bytes_(data_bytes),
        limits_(limits),
        // What is neither a tensor nor text for people is read and forgotten.
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
  static constexpr std::size_t most_rank = 255;  // that a catalog holds

  // What stands of a tensor in the header.
  struct Info {
    const ElementType* type = nullptr;
    bool has_shape = false;
    bool has_offsets = false;
  };

  Result<void> read_metadata();
  Result<void> read_tensor(std::string_view name);
  bool read_known(HeaderTensor& tensor);
  void remember(std::string_view text, const HeaderTensor& tensor);
  Result<void> read_field(std::string_view field, HeaderTensor& tensor, Info& info);
  Result<void> read_type(Info& info);
  Result<void> read_shape();
  Result<void> read_offsets(HeaderTensor& tensor);
  bool has_rows_of_whole_bytes(const ElementType& type) const noexcept;
  Result<void> complete(HeaderTensor& tensor, const Info& info);
  Result<void> check_bytes(const HeaderTensor& tensor, const ElementType& type) const;
  Result<void> check_layout();

  // What the reader found wrong, of the tensor that is being read, if one is.
  [[gnu::cold]] tl::unexpected<Error> not_json() const {
    Error error = json_.error();
    error.message = tensor_ == nullptr
                        ? "the header " + error.message
                        : "tensor " + bytes::quote(tensor_->name) + ": " + field_ + error.message;
    return tl::unexpected<Error>(std::move(error));
  }
  [[gnu::cold]] static tl::unexpected<Error> corrupt(const HeaderTensor& tensor,
                                                     const std::string& why) {
    return failure(ErrorCode::corrupt, "tensor " + bytes::quote(tensor.name) + why,
                   tensor.position);
  }
  [[gnu::cold]] tl::unexpected<Error> twice(std::string_view what) const {
    return failure(ErrorCode::corrupt,
                   (tensor_ == nullptr ? "the header" : "tensor " + bytes::quote(tensor_->name)) +
                       " has " + std::string(what) + " twice",
                   json_.position());
  }
  static std::string offsets_of(const HeaderTensor& tensor) {
    return ": data_offsets [" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) +
           "]";
  }
  std::string shape() const {
    std::string text = "[";
    for (const std::int64_t size : sizes_)
      text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
    return text + "]";
  }

  Header& header_;
  json::Reader& json_;
  std::uint64_t data_bytes_;
  const Limits& limits_;
  value::Builder build_;
  value::Cell metadata_ = build_.dict({});
  bool has_metadata_ = false;
  const HeaderTensor* tensor_ = nullptr;  // that is being read
  std::vector<std::int64_t> sizes_;       // of it
  const char* shape_end_ = nullptr;       // in the text, if its type stands before the shape
  KnownShapes known_;
  std::size_t most_dims_ = std::min<std::size_t>(limits_.rank, most_rank);
  std::string field_;  // of it, with a colon; empty: none
};

// null stands for none.
Result<void> HeaderParser::read_metadata() {
  if (std::exchange(has_metadata_, true)) return twice("__metadata__");
  if (json_.next() == json::Reader::Next::null) {
    json_.null();
    return {};
  }
  const auto refuse = [](Error error) {
    error.message.insert(0, "__metadata__: ");
    return tl::unexpected<Error>(std::move(error));
  };
  json::Reader ahead = json_;
  std::string_view text;
  if (ahead.enter_object())
    while (ahead.next_key(text) && ahead.string(text)) {
    }
  if (ahead.failed()) return refuse(ahead.error());
  Result<value::Cell> read = json::add_value(build_, json_);
  if (!read) return refuse(std::move(read.error()));
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
  tensor.name = json_.is_borrowed(name) ? name : header_.decoded_names.emplace_front(name);
  tensor.position = static_cast<std::uint32_t>(json_.position());
  tensor_ = &tensor;
  if (!read_known(tensor)) {
    const std::string_view text = json_.rest();
    Info info;
    std::string_view field;
    if (json_.enter_object())
      while (json_.next_key(field)) TRY(read_field(field, tensor, info));
    if (json_.failed()) return not_json();
    TRY(complete(tensor, info));
    remember(text, tensor);
  }
  tensor_ = nullptr;
  header_.tensors.push_back(tensor);
  return {};
}

// A tensor of a type and shape that are known, with nothing but data_offsets behind them: in a
// fourth of the time. False for any other, of which nothing is taken then.
bool HeaderParser::read_known(HeaderTensor& tensor) {
  const std::string_view shape = KnownShapes::shape_text(json_.rest());
  const KnownShapes::Known& known = known_.place_of(shape);
  if (shape.empty() || known.text != shape) return false;
  UsualText text(json_.rest().substr(shape.size()));
  if (!text.take(",") || !text.take("\"data_offsets\":") || !text.take("[") ||
      !text.number(tensor.begin) || !text.take(",") || !text.number(tensor.end) ||
      !text.take("]") || !text.take("}") || tensor.end < tensor.begin ||
      tensor.end - tensor.begin != known.nbytes)
    return false;
  tensor.first_dim = known.first_dim;
  tensor.dtype = known.dtype;
  tensor.rank = known.rank;
  tensor.is_viewable = known.is_viewable;
  json_.took(shape.size() + text.taken());
  return true;
}

// `text` begins with the tensor, which has been read.
void HeaderParser::remember(std::string_view text, const HeaderTensor& tensor) {
  const std::string_view shape = KnownShapes::shape_text(text);
  if (shape.empty() || shape.data() + shape.size() != shape_end_) return;
  known_.place_of(shape) = {shape,       tensor.end - tensor.begin, tensor.first_dim, tensor.dtype,
                            tensor.rank, tensor.is_viewable};
}

Result<void> HeaderParser::read_field(std::string_view field, HeaderTensor& tensor, Info& info) {
  if (field == "dtype") {
    if (info.type != nullptr) return twice("dtype");
    return read_type(info);
  }
  if (field == "shape") {
    if (std::exchange(info.has_shape, true)) return twice("shape");
    TRY(read_shape());
    const bool has_all_but_offsets = info.type != nullptr && !info.has_offsets;
    shape_end_ = has_all_but_offsets ? json_.rest().data() : nullptr;
    return {};
  }
  if (field == "data_offsets") {
    if (std::exchange(info.has_offsets, true)) return twice("data_offsets");
    return read_offsets(tensor);
  }
  field_ = bytes::quote(field) + ": ";
  const Result<value::Cell> unknown = json::add_value(build_, json_);
  if (!unknown && !json_.failed()) return tl::unexpected<Error>(unknown.error());
  if (json_.failed()) return not_json();
  field_.clear();
  return {};
}

Result<void> HeaderParser::read_type(Info& info) {
  std::string_view name;
  if (!json_.string(name)) {
    field_ = "dtype: ";
    return not_json();
  }
  info.type = type_of(name);
  if (info.type != nullptr) return {};
  return failure(ErrorCode::corrupt,
                 "tensor " + bytes::quote(tensor_->name) + " has the dtype " + bytes::quote(name) +
                     ", which safetensors does not know",
                 json_.position());
}

Result<void> HeaderParser::read_shape() {
  if (json_.enter_array())
    while (json_.next_element()) {
      std::uint64_t size = 0;
      if (!json_.natural(size)) break;
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return failure(ErrorCode::corrupt,
                       "tensor " + bytes::quote(tensor_->name) + " has the size " +
                           std::to_string(size) + ", which is larger than 2^63 - 1",
                       json_.position());
      if (sizes_.size() == most_dims_)
        return failure(ErrorCode::limit_exceeded,
                       "tensor " + bytes::quote(tensor_->name) + " has more than " +
                           std::to_string(most_dims_) + " dimensions, which is the limit",
                       json_.position());
      sizes_.push_back(static_cast<std::int64_t>(size));
    }
  if (!json_.failed()) return {};
  field_ = "shape: ";
  return not_json();
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
  if (json_.failed()) {
    field_ = "data_offsets: ";
    return not_json();
  }
  if (count != 2)
    return failure(ErrorCode::corrupt,
                   "tensor " + bytes::quote(tensor.name) + " has " +
                       bytes::counted(count, "data_offset") + ", expected 2",
                   begin);
  return {};
}

// Of those types whose elements are not bytes. A tensor may have whole bytes in all where its rows
// have not: then no view can be had of a part of it.
bool HeaderParser::has_rows_of_whole_bytes(const ElementType& type) const noexcept {
  const std::int64_t together = type.bits == 4 ? 2 : block_of(type.dtype).elements;
  return together == 1 || (!sizes_.empty() && sizes_.back() % together == 0);
}

// With all fields read.
Result<void> HeaderParser::complete(HeaderTensor& tensor, const Info& info) {
  if (info.type == nullptr) return corrupt(tensor, " has no dtype");
  if (!info.has_shape) return corrupt(tensor, " has no shape");
  if (!info.has_offsets) return corrupt(tensor, " has no data_offsets");
  TRY(check_bytes(tensor, *info.type));
  tensor.dtype = info.type->dtype;
  tensor.is_viewable = has_rows_of_whole_bytes(*info.type);
  if (info.type->bits == 4 && tensor.is_viewable) sizes_.back() /= 2;
  const std::size_t rank = sizes_.size();
  std::array<std::int64_t, most_rank> strides;
  if (!bytes::row_major_strides(sizes_, std::span(strides).first(rank)))
    return corrupt(tensor, " has strides of more than 63 bits: shape " + shape());
  std::pmr::vector<std::int64_t>& dims = header_.dims;
  // In the catalog they stand once more.
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
  return {};
}

Result<void> HeaderParser::check_bytes(const HeaderTensor& tensor, const ElementType& type) const {
  std::uint64_t bits = type.bits;
  bool fits = true;
  for (const std::int64_t size : sizes_)
    fits = fits && bytes::checked_mul(bits, static_cast<std::uint64_t>(size), &bits);
  if (fits && bits % 8 == 0 && tensor.begin <= tensor.end && tensor.end - tensor.begin == bits / 8)
    return {};
  const std::string is = " of " + std::string(type.name) + " and shape " + shape();
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

}  // namespace

Result<void> read_header(Header& header, std::uint64_t data_bytes, const Limits& limits,
                         std::pmr::memory_resource& memory) {
  return HeaderParser(header, data_bytes, limits, memory).run();
}

}  // namespace weightmap::safetensors
