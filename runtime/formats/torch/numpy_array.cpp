#include "runtime/formats/torch/numpy_array.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/format/numpy_dtype.hpp"
#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

using Kind = Value::Kind;

// True for a function of a module that numpy 2 renamed.
bool is_of_core(const Value& value, std::string_view module, std::string_view name) {
  for (const std::string_view package : {"numpy.core.", "numpy._core."})
    if (value.module().starts_with(package) && value.module().substr(package.size()) == module)
      return value.name() == name;
  return false;
}

// Returns the arguments of a call that was changed afterwards by at most a state.
std::optional<Value> arguments_of(const Value& call, std::size_t count) {
  const Value arguments = call.arguments();
  if (call.kind() != Kind::object || call.is_new_object() || call.size() != 0 ||
      call.item_count() != 0 || arguments.size() != count)
    return std::nullopt;
  return arguments;
}

std::optional<Value> state_of(const Value& call, std::size_t count) {
  const std::optional<Value> state = call.state();
  if (!state || state->kind() != Kind::tuple || state->size() != count) return std::nullopt;
  return state;
}

// Returns the type for a class of ml_dtypes of which torch has the same by this name.
std::optional<DType> type_of_ml_dtypes(const Value& type) {
  if (type.kind() != Kind::global || type.module() != "ml_dtypes" ||
      (type.name() != "bfloat16" && !type.name().starts_with("float8_")))
    return std::nullopt;
  return dtype_global("torch", type.name());
}

// Reads numpy.dtype(name, False, True), whose state begins with a version and the byte order. The
// state of a structure or a subarray has more fields.
std::optional<DType> array_dtype(const Value& value) {
  if (!is_named(value.callable(), "numpy", "dtype")) return std::nullopt;
  const std::optional<Value> arguments = arguments_of(value, 3);
  const std::optional<Value> state = state_of(value, 8);
  if (!arguments || !state) return std::nullopt;
  for (std::size_t i = 2; i < 5; ++i)
    if (!(*state)[i].is_none()) return std::nullopt;
  const Value name = (*arguments)[0];
  const std::optional<DType> dtype =
      name.string() ? format::numpy_dtype(*name.string()) : type_of_ml_dtypes(name);
  constexpr std::string_view native = std::endian::native == std::endian::little ? "<" : ">";
  const std::string_view order = (*state)[1].string().value_or("");
  const bool is_native = order == native || order == "=" || order == "|";
  return is_native ? dtype : std::nullopt;
}

constexpr std::size_t most_dims = 64;

// Sets the strides of a dense array and returns its element count; nullopt on overflow.
std::optional<std::int64_t> lay_out(NumpyArray& array, bool is_fortran) {
  array.strides.resize(array.shape.size());
  std::int64_t count = 1;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const std::size_t dim = is_fortran ? i : array.shape.size() - 1 - i;
    array.strides[dim] = count;
    const std::int64_t step = std::max<std::int64_t>(array.shape[dim], 1);
    if (!bytes::checked_mul(count, step, &count)) return std::nullopt;
  }
  return std::ranges::find(array.shape, 0) == array.shape.end() ? count : 0;
}

std::optional<NumpyArray> dense(const Value& content, const Value& dtype, const Value& shape,
                                bool is_fortran) {
  const auto bytes = content.bytes();
  const std::optional<DType> type = array_dtype(dtype);
  if (!bytes || !type || shape.kind() != Kind::tuple || shape.size() > most_dims)
    return std::nullopt;
  const std::uint64_t position = content.cell().payload;
  NumpyArray array{*type, {}, {}, position, bytes->size(), content.tree()->is_in_pickle(position)};
  for (const Value& dim : shape.elements()) {
    if (dim.integer().value_or(-1) < 0) return std::nullopt;
    array.shape.push_back(*dim.integer());
  }
  const std::optional<std::int64_t> count = lay_out(array, is_fortran);
  const std::size_t size = element_size(*type);
  if (!count || array.nbytes % size != 0 ||
      array.nbytes / size != static_cast<std::uint64_t>(*count))
    return std::nullopt;
  return array;
}

}  // namespace

std::optional<NumpyArray> numpy_array(const Value& object) {
  if (object.kind() != Kind::object) return std::nullopt;
  const Value function = object.callable();
  if (is_of_core(function, "multiarray", "_reconstruct")) {
    const std::optional<Value> arguments = arguments_of(object, 3);
    const std::optional<Value> state = state_of(object, 5);
    if (!arguments || !state || !is_named((*arguments)[0], "numpy", "ndarray")) return std::nullopt;
    const Value order = (*state)[3];  // numpy writes a bool, and used to write a number
    if (!order.boolean() && !order.integer()) return std::nullopt;
    const bool is_fortran = order.boolean() == true || order.integer().value_or(0) != 0;
    return dense((*state)[4], (*state)[2], (*state)[1], is_fortran);
  }
  if (is_of_core(function, "numeric", "_frombuffer")) {
    const std::optional<Value> arguments = arguments_of(object, 4);
    if (!arguments || object.state()) return std::nullopt;
    const std::string_view order = (*arguments)[3].string().value_or("");
    if (order != "C" && order != "F") return std::nullopt;
    return dense((*arguments)[0], (*arguments)[1], (*arguments)[2], order == "F");
  }
  return std::nullopt;
}

}  // namespace weightmap::torch
