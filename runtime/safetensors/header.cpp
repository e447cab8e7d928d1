#include "runtime/safetensors/header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/json/json_tree.hpp"
#include "runtime/value/builder.hpp"

namespace weightmap::safetensors {
namespace {

struct ElementType {
  std::string_view name;
  std::uint8_t bits;
  std::optional<DType> dtype;
};

// safetensors/src/tensor.rs, Dtype. The six-bit types have four elements in three bytes, which no
// type of torch or numpy is like. F4 counts single elements; torch's type is two of them.
constexpr std::array types = {
    ElementType{"F32", 32, DType::float32},
    ElementType{"BF16", 16, DType::bfloat16},
    ElementType{"F16", 16, DType::float16},
    ElementType{"F8_E4M3", 8, DType::float8_e4m3fn},
    ElementType{"F8_E5M2", 8, DType::float8_e5m2},
    ElementType{"F8_E8M0", 8, DType::float8_e8m0fnu},
    ElementType{"U8", 8, DType::uint8},
    ElementType{"I8", 8, DType::int8},
    ElementType{"I32", 32, DType::int32},
    ElementType{"I64", 64, DType::int64},
    ElementType{"BOOL", 8, DType::boolean},
    ElementType{"F64", 64, DType::float64},
    ElementType{"I16", 16, DType::int16},
    ElementType{"U16", 16, DType::uint16},
    ElementType{"U32", 32, DType::uint32},
    ElementType{"U64", 64, DType::uint64},
    ElementType{"C64", 64, DType::complex64},
    ElementType{"F8_E4M3FNUZ", 8, DType::float8_e4m3fnuz},
    ElementType{"F8_E5M2FNUZ", 8, DType::float8_e5m2fnuz},
    ElementType{"F4", 4, DType::float4_e2m1fn_x2},
    ElementType{"F6_E2M3", 6, std::nullopt},
    ElementType{"F6_E3M2", 6, std::nullopt},
};

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

  // What stands of a tensor in the header.
  struct Info {
    const ElementType* type = nullptr;
    bool has_shape = false;
    bool has_offsets = false;
  };

  Result<void> read_metadata();
  Result<void> read_tensor(std::string_view name);
  Result<void> read_field(std::string_view field, HeaderTensor& tensor, Info& info);
  Result<void> read_type(Info& info);
  Result<void> read_shape(HeaderTensor& tensor);
  Result<void> read_offsets(HeaderTensor& tensor);
  Result<void> complete(HeaderTensor& tensor, const Info& info);
  Result<void> count_bytes(HeaderTensor& tensor, const ElementType& type) const;
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
  std::string shape_of(const HeaderTensor& tensor) const {
    std::string text = "[";
    for (std::size_t i = 0; i < tensor.rank; ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(header_.dims[tensor.first_dim + i]);
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
  std::string field_;                     // of it, with a colon; empty: none
};

// null stands for none.
Result<void> HeaderParser::read_metadata() {
  if (std::exchange(has_metadata_, true)) return twice("__metadata__");
  if (json_.next() == json::Reader::Next::null) {
    json_.null();
    return {};
  }
  if (json_.next() != json::Reader::Next::object) {
    json_.enter_object();
    return not_json();
  }
  Result<value::Cell> read = json::add_value(build_, json_);
  if (!read) {
    read.error().message.insert(0, "__metadata__: ");
    return tl::unexpected<Error>(std::move(read.error()));
  }
  value::CellCursor cursor(value::target_of<const value::Sequence>(*read));
  while (const value::Cell* const key = cursor.next())
    if (value::kind_of(*cursor.next()) != Value::Kind::string)
      return failure(
          ErrorCode::corrupt,
          "__metadata__: the value of " + bytes::quote(build_.text(*key)) + " is no string",
          json_.position());
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
  tensor.position = static_cast<std::uint32_t>(json_.position());
  tensor_ = &tensor;
  Info info;
  if (json_.enter_object()) {
    std::string_view field;
    while (json_.next_key(field)) TRY(read_field(field, tensor, info));
  }
  if (json_.failed()) return not_json();
  TRY(complete(tensor, info));
  tensor_ = nullptr;
  header_.tensors.push_back(tensor);
  return {};
}

Result<void> HeaderParser::read_field(std::string_view field, HeaderTensor& tensor, Info& info) {
  if (field == "dtype") {
    if (info.type != nullptr) return twice("dtype");
    return read_type(info);
  }
  if (field == "shape") {
    if (std::exchange(info.has_shape, true)) return twice("shape");
    return read_shape(tensor);
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
  for (const ElementType& type : types) {
    if (type.name != name) continue;
    info.type = &type;
    return {};
  }
  return failure(ErrorCode::corrupt,
                 "tensor " + bytes::quote(tensor_->name) + " has the dtype " + bytes::quote(name) +
                     ", which safetensors does not know",
                 json_.position());
}

Result<void> HeaderParser::read_shape(HeaderTensor& tensor) {
  std::vector<std::int64_t>& dims = header_.dims;
  const std::size_t first = dims.size();
  const std::size_t most = std::min<std::size_t>(limits_.rank, 255);
  if (json_.enter_array())
    while (json_.next_element()) {
      std::uint64_t size = 0;
      if (!json_.natural(size)) break;
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return failure(ErrorCode::corrupt,
                       "tensor " + bytes::quote(tensor.name) + " has the size " +
                           std::to_string(size) + ", which is larger than 2^63 - 1",
                       json_.position());
      if (dims.size() - first == most)
        return failure(ErrorCode::limit_exceeded,
                       "tensor " + bytes::quote(tensor.name) + " has more than " +
                           std::to_string(most) + " dimensions, which is the limit",
                       json_.position());
      dims.push_back(static_cast<std::int64_t>(size));
    }
  if (json_.failed()) {
    field_ = "shape: ";
    return not_json();
  }
  tensor.first_dim = static_cast<std::uint32_t>(first);
  tensor.rank = static_cast<std::uint8_t>(dims.size() - first);
  return {};
}

Result<void> HeaderParser::read_offsets(HeaderTensor& tensor) {
  std::size_t count = 0;
  if (json_.enter_array())
    while (json_.next_element()) {
      std::uint64_t offset = 0;
      if (!json_.natural(offset)) break;
      (count == 0 ? tensor.begin : tensor.end) = offset;
      ++count;
    }
  if (json_.failed()) {
    field_ = "data_offsets: ";
    return not_json();
  }
  if (count != 2)
    return failure(ErrorCode::corrupt,
                   "tensor " + bytes::quote(tensor.name) + " has " +
                       bytes::counted(count, "data_offset") + ", expected 2",
                   json_.position());
  return {};
}

// With all fields known.
Result<void> HeaderParser::complete(HeaderTensor& tensor, const Info& info) {
  if (info.type == nullptr) return corrupt(tensor, " has no dtype");
  if (!info.has_shape) return corrupt(tensor, " has no shape");
  if (!info.has_offsets) return corrupt(tensor, " has no data_offsets");
  TRY(count_bytes(tensor, *info.type));
  std::vector<std::int64_t>& dims = header_.dims;
  const auto sizes = [&] { return dims.begin() + tensor.first_dim; };
  tensor.is_viewable = info.type->dtype.has_value();
  if (tensor.is_viewable) tensor.dtype = *info.type->dtype;
  if (info.type->bits == 4) {
    tensor.is_viewable = tensor.rank != 0 && sizes()[tensor.rank - 1] % 2 == 0;
    if (tensor.is_viewable) sizes()[tensor.rank - 1] /= 2;
  }
  dims.resize(dims.size() + tensor.rank);
  std::int64_t stride = 1;
  for (std::size_t i = tensor.rank; i-- > 0;) {
    sizes()[static_cast<std::ptrdiff_t>(tensor.rank + i)] = stride;
    if (!bytes::checked_mul(
            stride, std::max<std::int64_t>(1, sizes()[static_cast<std::ptrdiff_t>(i)]), &stride))
      return corrupt(tensor, " has more than 2^63 - 1 elements: shape " + shape_of(tensor));
  }
  return {};
}

Result<void> HeaderParser::count_bytes(HeaderTensor& tensor, const ElementType& type) const {
  std::uint64_t bits = type.bits;
  bool fits = true;
  for (std::size_t i = 0; i < tensor.rank; ++i)
    fits = fits && bytes::checked_mul(
                       bits, static_cast<std::uint64_t>(header_.dims[tensor.first_dim + i]), &bits);
  const std::string of = " of " + std::string(type.name) + " and shape ";
  if (!fits) return corrupt(tensor, of + shape_of(tensor) + " has more than 2^64 - 1 bits");
  if (bits % 8 != 0)
    return corrupt(tensor, of + shape_of(tensor) + " has " + std::to_string(bits) +
                               " bits, which are no whole bytes");
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bits / 8)
    return corrupt(tensor, of + shape_of(tensor) + " needs " + bytes::counted(bits / 8, "byte") +
                               offsets_of(tensor));
  return {};
}

Result<void> HeaderParser::check_layout() {
  std::vector<HeaderTensor>& tensors = header_.tensors;
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
