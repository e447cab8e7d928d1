// Arrays of numpy whose pickles say less than the machine's users need.
//
// joblib writes the elements of an array raw into the stream, behind the BUILD of an object that
// describes them. That object becomes the call that numpy's own pickling writes. A str of Python 2
// in such a call is bytes, which only look like text now and then.
#include <array>
#include <charconv>
#include <string_view>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

const value::Global* named(const value::Cell& cell) noexcept {
  return kind_of(cell) == Value::Kind::global ? value::target_of<const value::Global>(cell)
                                              : nullptr;
}

bool is_of_multiarray(const value::Cell& callable, std::string_view name) noexcept {
  const value::Global* const function = named(callable);
  return function != nullptr && function->name == name &&
         (function->module == "numpy.core.multiarray" ||
          function->module == "numpy._core.multiarray");
}

bool is_tuple_of(const value::Cell& cell, std::uint32_t count) noexcept {
  return kind_of(cell) == tuple && cell.part == value::whole_value && cell.count == count;
}

void make_part_bytes(const value::Cell& parts, std::uint32_t index) noexcept {
  value::Cell& text = value::target_of<value::Cell>(parts)[index];
  if (kind_of(text) != string || text.depth != value::python_2_text) return;
  text = value::make_cell(Value::Kind::bytes, text.payload, text.count);
}

// Also of protocol 0 and 1, which create an object by a call.
bool stands_for_array(const value::Object& object) noexcept {
  const value::Cell& arguments = object.arguments;
  const bool is_created = !object.is_new_object && is_tuple_of(arguments, 3);
  const value::Global* const type =
      named(is_created ? tuple_element(arguments, 0) : object.callable);
  return type != nullptr && pickle::is_joblib_array(type->module, type->name);
}

// What the object says of the array.
struct ArrayForm {
  value::Cell subclass, shape, order, dtype, alignment;
};

}  // namespace

bool is_joblib_array(std::string_view module, std::string_view name) noexcept {
  return name == "NumpyArrayWrapper" &&
         (module == "joblib.numpy_pickle" || module == "sklearn.externals.joblib.numpy_pickle");
}

void Machine::read_numpy_bytes(const value::Cell& callable, const value::Cell& arguments) {
  if (is_of_multiarray(callable, "_reconstruct") && is_tuple_of(arguments, 3))
    make_part_bytes(arguments, 2);
  if (is_of_multiarray(callable, "scalar") && is_tuple_of(arguments, 2))
    make_part_bytes(arguments, 1);
}

bool Machine::finish_array(value::Object& built) {
  if (is_of_multiarray(built.callable, "_reconstruct") && is_tuple_of(built.state, 5))
    make_part_bytes(built.state, 4);
  if (!limits_.has_raw_arrays || !stands_for_array(built)) return true;
  ArrayForm form;
  if (kind_of(built.state) != dict) return fail_array(ErrorCode::corrupt, "has no attributes");
  value::CellCursor items(value::target_of<const value::Sequence>(built.state));
  while (const value::Cell* key = items.next()) {
    const value::Cell& item = *items.next();
    if (kind_of(*key) != string) continue;
    const std::string_view name = tree_.text(key->payload, key->count);
    if (name == "subclass") form.subclass = item;
    if (name == "shape") form.shape = item;
    if (name == "order") form.order = item;
    if (name == "dtype") form.dtype = item;
    if (name == "numpy_array_alignment_bytes") form.alignment = item;
  }
  const std::optional<std::uint64_t> size = element_bytes(form.dtype);
  if (!size)
    return fail_array(ErrorCode::corrupt, "has elements of a dtype whose size it does not say");
  if (*size == 0) return take_objects();
  if (kind_of(form.shape) != tuple) return fail_array(ErrorCode::corrupt, "has no shape");
  std::uint64_t length = *size;
  for (std::uint32_t i = 0; i < form.shape.count; ++i) {
    const value::Cell dim = tuple_element(form.shape, i);
    if (kind_of(dim) != integer || static_cast<std::int64_t>(dim.payload) < 0 ||
        !bytes::checked_mul(length, dim.payload, &length))
      return fail_array(ErrorCode::corrupt, "has an impossible shape");
  }
  const std::string_view order = kind_of(form.order) == string
                                     ? tree_.text(form.order.payload, form.order.count)
                                     : std::string_view();
  if (order != "C" && order != "F")
    return fail_array(ErrorCode::corrupt, "has an order that is neither C nor F");
  value::Cell elements;
  if (!take_elements(kind_of(form.alignment) != none, length, elements)) return false;
  return become_array(built, form.subclass, form.shape, form.dtype, order == "F", elements);
}

// Returns the size of an element of numpy.dtype(name, False, True) with its state; 0 for objects. A
// type that is not numpy's own, such as ml_dtypes.bfloat16, stands in place of the name.
std::optional<std::uint64_t> Machine::element_bytes(const value::Cell& dtype) const {
  if (kind_of(dtype) != object || dtype.part != value::whole_value) return std::nullopt;
  const auto& call = *value::target_of<const value::Object>(dtype);
  const value::Global* const type = named(call.callable);
  if (type == nullptr || type->module != "numpy" || type->name != "dtype" ||
      !is_tuple_of(call.arguments, 3) || kind_of(call.state) != tuple || call.state.count < 8)
    return std::nullopt;
  const value::Cell name = tuple_element(call.arguments, 0);
  const value::Cell size = tuple_element(call.state, 5);
  const value::Cell flags = tuple_element(call.state, 7);
  const bool is_numpys = kind_of(name) == string;
  if ((!is_numpys && named(name) == nullptr) || kind_of(size) != integer ||
      kind_of(flags) != integer)
    return std::nullopt;
  constexpr std::uint64_t has_references = 1;
  const std::string_view text =
      is_numpys ? tree_.text(name.payload, name.count) : std::string_view();
  if ((flags.payload & has_references) != 0 || text.starts_with('O')) return 0;
  if (static_cast<std::int64_t>(size.payload) > 0) return size.payload;
  std::uint64_t digits = 0;
  const auto read = std::from_chars(text.data() + !text.empty(), text.data() + text.size(), digits);
  const bool is_number = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return is_number && digits != 0 ? std::optional(digits) : std::nullopt;
}

// Takes the pickle of its own behind the opcode, which Python's pickle wrote, in place of the
// array.
bool Machine::take_objects() {
  ParseLimits limits = limits_;
  limits.has_raw_arrays = false;
  Machine inner(tree_, file_offset_, limits, Packing::off);
  inner.at_ = at_;
  inner.is_inner_ = true;
  if (!inner.run()) {
    error_ = inner.take_error();
    return false;
  }
  at_ = inner.at_;
  stack_[stack_size_ - 1] = inner.stack_[0];
  return true;
}

// Takes the raw bytes behind the opcode. A byte that counts the padding comes first, since
// joblib 1.2.
bool Machine::take_elements(bool is_padded, std::uint64_t length, value::Cell& elements) {
  const auto left = static_cast<std::uint64_t>(end_ - at_);
  if (is_padded && left == 0)
    return fail_array(ErrorCode::corrupt, "has no elements; the file is truncated");
  const std::uint64_t padding = is_padded ? std::uint64_t{1} + *at_ : 0;
  if (padding > left || length > left - padding)
    return fail_array(ErrorCode::corrupt, "has " + bytes::counted(length, "byte") +
                                              " of elements, and " + bytes::counted(left, "byte") +
                                              " are left in the file; it is truncated");
  at_ += padding;
  elements =
      value::make_cell(Value::Kind::bytes, position(at_), static_cast<std::uint32_t>(length));
  at_ += length;
  return true;
}

bool Machine::become_array(value::Object& built, const value::Cell& subclass,
                           const value::Cell& shape, const value::Cell& dtype, bool is_fortran,
                           const value::Cell& elements) {
  const value::Global* const function =
      value::make_global(arena_, "numpy.core.multiarray", "_reconstruct", position(opcode_at_));
  // A mapped array is one as any other.
  const value::Global* const given = named(subclass);
  const bool is_mapped = given != nullptr && given->module == "numpy" && given->name == "memmap";
  const value::Global* const type =
      is_mapped ? value::make_global(arena_, "numpy", "ndarray", position(opcode_at_)) : given;
  if (function == nullptr || (is_mapped && type == nullptr)) return fail_budget();
  if (type == nullptr) return fail_array(ErrorCode::corrupt, "has no class");
  const value::Cell zero = value::make_integer(0);
  std::array<value::Cell, 3> arguments{
      value::make_cell(Value::Kind::global, type),
      {},
      value::make_cell(Value::Kind::bytes, tree_.position_of("b"), 1)};
  const std::array state{value::make_integer(1), shape, dtype,
                         value::make_cell(boolean, std::uint64_t{is_fortran}), elements};
  if (!make_tuple(&zero, 1, arguments[1]) ||
      !make_tuple(arguments.data(), arguments.size(), built.arguments) ||
      !make_tuple(state.data(), state.size(), built.state))
    return false;
  built.callable = value::make_cell(Value::Kind::global, function);
  built.is_new_object = false;
  const std::array parts{built.arguments, built.state};
  return nest(parts.data(), parts.size(), built.depth);
}

bool Machine::fail_array(ErrorCode code, std::string_view why) {
  return fail(code, "an array of joblib " + std::string(why));
}

}  // namespace weightmap::pickle
