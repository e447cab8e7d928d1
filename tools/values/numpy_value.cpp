#include "tools/values/numpy_value.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/element_format.hpp"

namespace weightmap::cli {
namespace {

using Kind = Value::Kind;

bool is_global(const Value& value, std::string_view module, std::string_view name) {
  return value.kind() == Kind::global && value.module() == module && value.name() == name;
}

// True for a function of a module that numpy 2 renamed.
bool is_of_core(const Value& value, const std::string& module, std::string_view name) {
  return is_global(value, "numpy.core." + module, name) ||
         is_global(value, "numpy._core." + module, name);
}

// Returns the arguments of a call that was changed afterwards by at most a state.
std::optional<Value> arguments_of(const Value& call, std::size_t count) {
  const Value arguments = call.arguments();
  if (call.kind() != Kind::object || call.size() != 0 || call.item_count() != 0 ||
      arguments.kind() != Kind::tuple || arguments.size() != count)
    return std::nullopt;
  return arguments;
}

bool is_big_endian(const Value& dtype) {
  const std::optional<Value> state = dtype.state();
  return state && state->kind() == Kind::tuple && state->size() > 1 && (*state)[1].string() == ">";
}

void swap_elements(Elements& elements) {
  const auto unit = static_cast<std::ptrdiff_t>(swap_unit(elements.dtype));
  for (auto at = elements.bytes.begin(); at != elements.bytes.end(); at += unit)
    std::reverse(at, at + unit);
}

std::optional<Elements> elements_of(const Value& type, const Value& content) {
  const std::optional<DType> dtype = numpy_dtype(type);
  const std::optional<std::span<const std::byte>> bytes = content.bytes();
  if (!dtype || !bytes || bytes->size() % element_size(*dtype) != 0) return std::nullopt;
  Elements elements{*dtype, {bytes->begin(), bytes->end()}};
  if (is_big_endian(type) != (std::endian::native == std::endian::big)) swap_elements(elements);
  return elements;
}

// Returns sizes and strides of a dense array of `count` elements; nullopt for another number.
std::optional<std::vector<std::int64_t>> dense_dims(const Value& shape, bool is_fortran,
                                                    std::size_t count) {
  constexpr std::size_t most_dims = 64;  // numpy's limit
  if (shape.kind() != Kind::tuple || shape.size() > most_dims) return std::nullopt;
  const std::size_t rank = shape.size();
  std::vector<std::int64_t> dims(2 * rank);
  std::int64_t stride = 1;
  bool is_empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dim = is_fortran ? i : rank - 1 - i;
    const std::int64_t size = shape[dim].integer().value_or(-1);
    const std::int64_t step = std::max<std::int64_t>(size, 1);
    if (size < 0 || step > std::numeric_limits<std::int64_t>::max() / stride) return std::nullopt;
    is_empty = is_empty || size == 0;
    dims[dim] = size;
    dims[rank + dim] = stride;
    stride *= step;
  }
  if (count != (is_empty ? 0 : static_cast<std::size_t>(stride))) return std::nullopt;
  return dims;
}

}  // namespace

std::optional<DType> numpy_dtype(const Value& value) {
  const Value arguments = value.arguments();
  if (!is_global(value.callable(), "numpy", "dtype") || arguments.kind() != Kind::tuple ||
      arguments.size() == 0)
    return std::nullopt;
  const std::optional<std::string_view> name = arguments[0].string();
  for (std::size_t i = 0; name && i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    const ElementFormat& format = element_format(dtype);
    if (format.is_numpy_type() &&
        *name == std::string(1, format.numpy_kind) + std::to_string(element_size(dtype)))
      return dtype;
  }
  return std::nullopt;
}

std::optional<NumpyParts> numpy_array_parts(const Value& object) {
  const Value function = object.callable();
  const std::optional<Value> state = object.state();
  if (is_of_core(function, "multiarray", "_reconstruct") && arguments_of(object, 3) && state &&
      state->kind() == Kind::tuple && state->size() == 5) {
    const Value order = (*state)[3];  // numpy writes a bool, and used to write a number
    return NumpyParts{(*state)[2], (*state)[1], (*state)[4],
                      order.boolean() == true || order.integer().value_or(0) != 0};
  }
  const std::optional<Value> arguments = arguments_of(object, 4);
  if (!is_of_core(function, "numeric", "_frombuffer") || !arguments || state) return std::nullopt;
  return NumpyParts{(*arguments)[1], (*arguments)[2], (*arguments)[0],
                    (*arguments)[3].string() == "F"};
}

std::optional<NumpyValue> numpy_scalar(const Value& object) {
  const std::optional<Value> arguments = arguments_of(object, 2);
  if (!is_of_core(object.callable(), "multiarray", "scalar") || !arguments || object.state())
    return std::nullopt;
  std::optional<Elements> elements = elements_of((*arguments)[0], (*arguments)[1]);
  if (!elements || elements->size() != 1) return std::nullopt;
  return NumpyValue{std::move(*elements), {}};
}

std::optional<NumpyValue> numpy_array(const Value& object) {
  const std::optional<NumpyParts> parts = numpy_array_parts(object);
  std::optional<Elements> elements =
      parts ? elements_of(parts->dtype, parts->content) : std::nullopt;
  if (!elements) return std::nullopt;
  std::optional<std::vector<std::int64_t>> dims =
      dense_dims(parts->shape, parts->is_fortran, elements->size());
  if (!dims) return std::nullopt;
  return NumpyValue{std::move(*elements), std::move(*dims)};
}

std::optional<NumpyValue> bytes_as_array(const Value& value) {
  const std::optional<std::span<const std::byte>> bytes = value.bytes();
  if (!bytes) return std::nullopt;
  std::vector<std::int64_t> dims{static_cast<std::int64_t>(bytes->size()), 1};
  return NumpyValue{{DType::uint8, {bytes->begin(), bytes->end()}}, std::move(dims)};
}

}  // namespace weightmap::cli
