#include <optional>
#include <string>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/tensor.hpp"
#include "runtime/base/element_format.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/half.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

template <class T>
PyObject* integer_at(const std::byte* at) {
  if constexpr (std::is_signed_v<T>)
    return PyLong_FromLongLong(load_element<T>(at));
  else
    return PyLong_FromUnsignedLongLong(load_element<T>(at));
}

// Reads a floating point type, or half a complex one.
double real_at(DType dtype, const std::byte* at) noexcept {
  if (dtype == DType::float64) return load_element<double>(at);
  if (dtype == DType::float32) return static_cast<double>(load_element<float>(at));
  double value = 0;
  with_small_float(dtype, [&](auto type) {
    value = static_cast<double>(static_cast<float>(load_element<decltype(type)>(at)));
  });
  return value;
}

PyObject* complex_at(DType half, const std::byte* at) {
  return PyComplex_FromDoubles(real_at(half, at), real_at(half, at + element_size(half)));
}

// A new reference, or nullptr with an exception set. Precondition: stores_values(dtype).
PyObject* number_at(DType dtype, const std::byte* at) {
  using enum DType;
  if (const std::optional<int> small = number_in_low_bits(dtype, *at))
    return PyLong_FromLong(*small);
  switch (dtype) {
    case boolean:
      return PyBool_FromLong(*at != std::byte{0});
    case int64:
      return integer_at<std::int64_t>(at);
    case int32:
      return integer_at<std::int32_t>(at);
    case int16:
      return integer_at<std::int16_t>(at);
    case int8:
      return integer_at<std::int8_t>(at);
    case uint64:
      return integer_at<std::uint64_t>(at);
    case uint32:
      return integer_at<std::uint32_t>(at);
    case uint16:
      return integer_at<std::uint16_t>(at);
    case uint8:
      return integer_at<std::uint8_t>(at);
    case complex128:
      return complex_at(DType::float64, at);
    case complex64:
      return complex_at(DType::float32, at);
    case complex32:
      return complex_at(DType::float16, at);
    default:
      return PyFloat_FromDouble(real_at(dtype, at));
  }
}

// All elements, row-major, in this machine's byte order.
std::vector<std::byte> bytes_of(const Tensor& tensor) {
  check_repeats(tensor);
  const DType dtype = tensor.view().dtype();
  if (!stores_values(dtype))
    raise(ErrorCode::unsupported,
          "what a " + std::string(to_string(dtype)) +
              " tensor stores are not its values; .bits() gives the stored integers");
  std::vector<std::byte> bytes(tensor.view().nbytes());
  value_or_raise(without_gil([&] { return copy_elements(tensor, bytes); }));
  return bytes;
}

// Elements, and lists, after which Ctrl-C is looked for.
constexpr std::uint64_t between_signals = 1 << 16;

// The lists of the dimensions from `dim` on. `at` goes on to what comes after them.
nb::object list_of(const TensorView& view, std::size_t dim, const std::byte*& at,
                   std::uint64_t& made) {
  if (++made % between_signals == 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
  if (dim == view.rank()) {
    nb::object number = checked(number_at(view.dtype(), at));
    at += element_size(view.dtype());
    return number;
  }
  const nb::object list = checked(PyList_New(view.shape()[dim]));
  for (std::int64_t i = 0; i < view.shape()[dim]; ++i)
    if (PyList_SetItem(list.ptr(), i, list_of(view, dim + 1, at, made).release().ptr()) != 0)
      throw nb::python_error();
  return list;
}

// item_of() for a conversion that Python asks for.
nb::object single(const Tensor& tensor, const char* conversion) {
  if (tensor.view().numel() != 1)
    throw nb::type_error(("only a tensor of one element has " + std::string(conversion) +
                          "; take .tolist() or .numpy()")
                             .c_str());
  return item_of(tensor);
}

nb::object to_object(const std::optional<Number>& number) {
  if (!number) return nb::none();
  return std::visit([](auto value) { return nb::object(nb::cast(value)); }, *number);
}

nb::object to_object(const std::optional<double>& number) {
  return number ? nb::object(nb::float_(*number)) : nb::none();
}

}  // namespace

Result<void> copy_elements(const Tensor& tensor, std::span<std::byte> out) {
  TRY(tensor.owner->check_bytes());
  return tensor.owner->checkpoint().gather(tensor.view(), out);
}

void check_repeats(const Tensor& tensor) {
  constexpr std::uint64_t one_element = 1;
  const auto no_more = [](std::span<const std::byte>) { return false; };
  const Result<void> begun = for_each_piece(tensor.view(), no_more, one_element);
  if (!begun && begun.error().code == ErrorCode::limit_exceeded) value_or_raise(begun);
}

bool stores_values(DType dtype) noexcept {
  const ElementFormat& format = element_format(dtype);
  // By this name numpy has it, or ml_dtypes.
  return format.numpy_name == format.name || dtype == DType::complex32;
}

nb::object item_of(const Tensor& tensor) {
  const std::uint64_t numel = tensor.view().numel();
  if (numel != 1)
    throw nb::value_error(("only a tensor of one element has an item(), this one has " +
                           std::to_string(numel) + "; take .tolist() or .numpy()")
                              .c_str());
  return checked(number_at(tensor.view().dtype(), bytes_of(tensor).data()));
}

nb::object to_list(const Tensor& tensor) {
  const std::vector<std::byte> bytes = bytes_of(tensor);
  const std::byte* at = bytes.data();
  std::uint64_t made = 0;
  return list_of(tensor.view(), 0, at, made);
}

nb::object iterate(const Tensor& tensor) {
  if (tensor.view().rank() == 0)
    throw nb::type_error("a tensor without dimensions is not iterable; take .item()");
  return checked(PySeqIter_New(nb::find(tensor).ptr()));
}

nb::object to_int(const Tensor& tensor) {
  return checked(PyNumber_Long(single(tensor, "an int()").ptr()));
}

nb::object to_float(const Tensor& tensor) {
  return checked(PyNumber_Float(single(tensor, "a float()").ptr()));
}

nb::object to_complex(const Tensor& tensor) {
  const nb::object number = single(tensor, "a complex()");
  return nb::borrow(reinterpret_cast<PyObject*>(&PyComplex_Type))(number);
}

nb::object to_index(const Tensor& tensor) {
  const char kind = element_format(tensor.view().dtype()).numpy_kind;
  if (tensor.view().rank() != 0 || (kind != 'i' && kind != 'u'))
    throw nb::type_error("only an integer tensor without dimensions can be an index");
  return single(tensor, "an index");
}

nb::object stats_of(const Tensor& tensor) {
  value_or_raise(tensor.owner->check_bytes());
  LongCall call;
  const TensorStatistics stats =
      value_or_raise(call.run([&] { return statistics(tensor.view(), call.progress()); }));
  value_or_raise(check_unchanged(tensor.owner->checkpoint(), tensor.view()));
  return nb::module_::import_("weightmap.reports")
      .attr("TensorStats")(stats.count, to_object(stats.min), to_object(stats.max),
                           to_object(stats.mean), to_object(stats.std), stats.nan, stats.infinite,
                           stats.zeros);
}

}  // namespace weightmap::python
