#include "python/src/tensor.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/dlpack.hpp"
#include "python/src/errors.hpp"
#include "python/src/plain_method.hpp"
#include "python/src/text.hpp"
#include "runtime/base/element_format.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

nb::bytes copied_bytes(const Tensor& tensor) {
  check_repeats(tensor);
  const std::uint64_t size = tensor.view().nbytes();
  const nb::object bytes =
      checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  auto* out = reinterpret_cast<std::byte*>(PyBytes_AsString(bytes.ptr()));
  value_or_raise(without_gil([&] { return copy_elements(tensor, {out, size}); }));
  return nb::borrow<nb::bytes>(bytes);
}

// The only one that gives numbers the same way for all of them.
nb::object dequantize(const Tensor& tensor) {
  return nb::module_::import_("weightmap._numpy").attr("dequantize")(nb::find(tensor));
}

std::size_t item_size(const Tensor& tensor) {
  const DType dtype = tensor.view().dtype();
  if (is_blocked(dtype))
    raise(ErrorCode::unsupported, "no element of a " + std::string(to_string(dtype)) +
                                      " tensor has bytes of its own; .block says how many "
                                      "elements are stored together, in how many bytes");
  return element_size(dtype);
}

nb::tuple block_of_tensor(const Tensor& tensor) {
  const Block block = block_of(tensor.view().dtype());
  return nb::make_tuple(block.elements, block.bytes);
}

std::string describe(const Tensor& tensor) {
  // The name is written as Python writes it, since it may contain any character.
  std::string text = "<weightmap.Tensor " + to_utf8(nb::repr(to_str(tensor.named.name))) + " ";
  text += to_string(tensor.view().dtype());
  text += " [";
  const TensorView& view = tensor.view();
  for (std::size_t dim = 0; dim < view.rank(); ++dim)
    text += (dim == 0 ? "" : ", ") + std::to_string(view.shape()[dim]);
  return text + "]>";
}

nb::object reduce_tensor(const Tensor& tensor) {
  return nb::module_::import_("weightmap._pickling")
      .attr("reduce_tensor")(OpenCheckpoint{tensor.owner}, nb::find(tensor));
}

std::int64_t length_of(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  if (view.rank() == 0)
    throw nb::type_error("a tensor without dimensions has no len(); take .item()");
  return view.shape()[0];
}

// Raises for what might be meant as a comparison of elements, and says what to do instead.
nb::object compare(const Tensor&, nb::handle other) {
  if (other.is_none()) return nb::borrow(Py_NotImplemented);
  throw nb::type_error(
      "a tensor does not compare its elements; compare .numpy() or .torch(), or ask with `is` for "
      "the same object");
}

// numpy calls this by itself, so that its user does not see whether it gets values.
nb::object to_array(const Tensor& tensor, nb::handle dtype, nb::handle copy) {
  const DType stored = tensor.view().dtype();
  if (!stores_values(stored))
    raise(ErrorCode::unsupported, "what a " + std::string(to_string(stored)) +
                                      " tensor stores are not its values; .numpy() shows the "
                                      "stored integers");
  nb::object array = to_numpy(tensor);
  const bool is_converted = !dtype.is_none() && !array.attr("dtype").equal(dtype);
  if (is_converted && copy.is(Py_False))
    throw nb::value_error("another dtype needs a copy, and copy=False forbids one");
  if (!is_converted && !copy.is(Py_True)) return array;
  nb::object copied = nb::module_::import_("numpy").attr("empty")(
      array.attr("shape"), array.attr("dtype").attr("newbyteorder")("="));
  const auto address = nb::cast<std::uintptr_t>(copied.attr("ctypes").attr("data"));
  value_or_raise(
      copy_elements(tensor, {reinterpret_cast<std::byte*>(address), tensor.view().nbytes()}));
  return is_converted ? copied.attr("astype")(dtype) : copied;
}

nb::tuple numpy_word(std::string_view name) {
  const std::optional<DType> dtype = dtype_from_string(name);
  if (!dtype) return nb::make_tuple("", false);
  const ElementFormat& format = element_format(*dtype);
  return nb::make_tuple(format.numpy_name, format.numpy_kind == 0);
}

// Binds the methods that people call; python/stub_patterns.txt has their types.
void def_methods(nb::handle type) {
  def_plain<to_numpy>(
      type, "numpy",
      R"(A numpy array over the same bytes; read-only unless the checkpoint was opened writable.

bfloat16 and float8 need the package ml_dtypes. Quantized and packed types show their stored
integers, blocked ones (q4_K) the bytes of their blocks as bits() does: another shape, and no
values, which dequantize() gives. Files of the other byte order give arrays of that byte order.)");
  def_optional<to_torch>(type, "torch", "copy_on_write",
                         R"(A torch tensor over the same pages of the page cache.

torch knows no read-only tensors. With copy_on_write=True, which is what open() takes unless it is
told otherwise, the tensor lies in memory that is copied when it is written to, page by page: a
write stays in this process, changes neither the file nor what numpy() shows, and never fails; but
a driver that pins such memory copies all of it. With False it lies in the mapping that all
processes share: nothing is ever copied, and a write ends the process with SIGSEGV, after a line on
standard error that names the tensor. "small" copies on write what has a storage of less than 1 MiB.
None: as the checkpoint was opened. One that was opened writable lends what it maps, and takes only
None and True.

Tensors of the other byte order are copied and swapped, as are those that are not aligned for torch.
requires_grad is not carried over. Blocked types (q4_K) show the bytes of their blocks as bits()
does.)");
  def_plain<bits_of>(type, "bits",
                     R"(The same elements as unsigned integers of their size: what is stored.

Of a blocked dtype the bytes of its blocks, with rows in bytes: (4096, 256) of q4_K is (4096, 144)
of uint8, which is what gguf.GGUFReader calls the data of a tensor. InvalidArgumentError for
complex128.)");
  def_plain<dequantize>(type, "dequantize",
                        R"(The values as a new numpy array of float32.

Blocked dtypes are computed by the package gguf, which must be installed; UnsupportedError for one
that it cannot compute, and for quantized types of torch, whose scales lie elsewhere.)");
  def_plain<copied_bytes>(type, "tobytes",
                          "A copy of the elements, row-major and in this machine's byte order.");
  def_plain<buffer_of>(type, "buffer",
                       R"(The elements by the buffer protocol, with their shape, strides and format.

BufferError for what it has no word for, like bfloat16; .bits().buffer() has the stored bits.)");
  def_plain<item_of>(
      type, "item",
      "The only element as a Python number, exactly; ValueError if there is not just one.");
  def_plain<to_list>(
      type, "tolist",
      "The elements as Python numbers, exactly, in lists as deep as there are dimensions.");
  def_plain<stats_of>(
      type, "stats",
      R"(Minimum, maximum, mean, std, and how many are NaN, infinite and zero: a TensorStats.

Reads each element once and computes in float64, whatever the dtype; UnsupportedError for complex,
quantized and packed types.)");
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor> type(module, "Tensor",
                          // The first line is for inspect.signature().
                          R"(Tensor()
--

A tensor of a checkpoint, where it lies in the mapped file. Nothing is copied.

Keeps the mapping alive, and so does every array made of it, after the Checkpoint is closed or gone.
Slicing gives tensors that share the bytes. All methods may be called from any thread. If another
process truncates the file, reading lost bytes ends the process with SIGBUS, unless it was opened
with another protection than "map": replace checkpoints by rename.)");
  type.def_prop_ro(
          "name", [](const Tensor& t) { return to_str(t.named.name); },
          "Keys on the way from the root of the checkpoint, joined by dots.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return to_string(t.view().dtype()); },
          "As torch spells it, without the prefix: 'float32', 'bfloat16', 'bool'; blocked ones "
          "as ggml does: 'q4_K'.")
      .def_prop_ro("shape", shape_of, nb::sig("def shape(self) -> tuple[int, ...]"),
                   "Elements along each dimension, outermost first.")
      .def_prop_ro("strides", strides_of, nb::sig("def strides(self) -> tuple[int, ...]"),
                   "Distance between neighbours along each dimension, in elements as torch counts "
                   "them.")
      .def_prop_ro(
          "ndim", [](const Tensor& t) { return t.view().rank(); }, "Number of dimensions.")
      .def_prop_ro(
          "numel", [](const Tensor& t) { return t.view().numel(); },
          "Number of elements. Not a method, unlike torch's.")
      .def_prop_ro("itemsize", item_size,
                   "Bytes of one element; UnsupportedError for a blocked dtype, see block.")
      .def_prop_ro("block", block_of_tensor, nb::sig("def block(self) -> tuple[int, int]"),
                   "How many elements are stored together, in how many bytes: (256, 144) for "
                   "'q4_K', (1, itemsize) for a dtype without blocks.")
      .def_prop_ro(
          "nbytes", [](const Tensor& t) { return t.view().nbytes(); },
          "Bytes of all elements. An expanded tensor occupies less in the file.")
      .def_prop_ro(
          "is_contiguous", [](const Tensor& t) { return t.view().is_contiguous(); },
          "Row-major without gaps.")
      .def_prop_ro("is_writable", &Tensor::is_writable,
                   "Whether numpy() gives an array that may be written to.")
      .def_prop_ro(
          "byteorder",
          [](const Tensor& t) -> std::string_view {
            return t.view().is_foreign_byte_order() ? "foreign" : "native";
          },
          "'native', or 'foreign' if the file's byte order is not this machine's.")
      .def_prop_ro(
          "is_conjugate", [](const Tensor& t) { return t.view().is_conjugate(); },
          "Saved as torch's lazy conjugate: stored are the conjugates of the values.")
      .def_prop_ro(
          "is_negative", [](const Tensor& t) { return t.view().is_negative(); },
          "Saved as torch's lazy negative: stored are the negatives of the values.")
      .def_prop_ro("requires_grad", [](const Tensor& t) { return t.named.requires_grad; })
      .def_prop_ro(
          "is_parameter", [](const Tensor& t) { return t.named.is_parameter; },
          "Saved as torch.nn.Parameter, or one by a TorchScript class.")
      .def_prop_ro(
          "is_buffer", [](const Tensor& t) { return t.named.is_buffer; },
          "A buffer by a TorchScript class, or of a pickled module.")
      .def_prop_ro(
          "location", [](const Tensor& t) { return to_str(t.named.location); },
          "Where the tensor was when it was saved: 'cpu', 'cuda:0'.")
      .def_prop_ro(
          "storage", [](const Tensor& t) { return to_str(t.named.storage); },
          "Key of the storage: '0' for the record data/0. Tied tensors have the same.")
      .def_prop_ro(
          "storage_offset", [](const Tensor& t) { return t.named.storage_offset; },
          "Of the first element in the storage, in elements.")
      .def_prop_ro(
          "index", [](const Tensor& t) { return t.named.index; },
          "Position among the checkpoint's tensors, in the order of the file.")
      .def_prop_ro(
          "storage_index", [](const Tensor& t) { return t.named.storage_index; },
          "Position of the storage among those of the checkpoint. Of several files some may have "
          "storages with one key.")
      .def_prop_ro(
          "file_offset", [](const Tensor& t) { return t.named.file_offset; },
          "Of the first element in the file, in bytes.")
      .def_prop_ro(
          "file_index", [](const Tensor& t) { return t.named.source; },
          "Which of Checkpoint.files it lies in.");
  def_methods(type);
  type.def("__bytes__", copied_bytes, "tobytes()")
      .def("__int__", to_int, nb::sig("def __int__(self) -> int"))
      .def("__float__", to_float, nb::sig("def __float__(self) -> float"))
      .def("__complex__", to_complex, nb::sig("def __complex__(self) -> complex"))
      .def("__index__", to_index, nb::sig("def __index__(self) -> int"))
      .def("__iter__", iterate, nb::sig("def __iter__(self) -> typing.Iterator[Tensor]"),
           "The parts along the first dimension.")
      .def("__eq__", compare, nb::arg("other").none(),
           nb::sig("def __eq__(self, other: object, /) -> bool"),
           "Raises TypeError: elements are not compared. False for None.")
      .def("__ne__", compare, nb::arg("other").none(),
           nb::sig("def __ne__(self, other: object, /) -> bool"))
      .def(
          "__getitem__", subscript, nb::arg("key").none(),
          nb::sig("def __getitem__(self, key: int | slice | types.EllipsisType | tuple[int | slice "
                  "| types.EllipsisType, ...], /) -> Tensor"),
          "A part of the tensor, sharing its bytes. What would need a copy is refused: steps "
          "backward, masks, lists and arrays of indices; .numpy() and .torch() take them.")
      .def("__len__", length_of)
      .def(
          "__contains__",
          [](const Tensor&, nb::handle) -> bool {
            throw nb::type_error("a tensor does not search itself; take .numpy()");
          },
          nb::arg("value").none())
      .def("__bool__",
           [](const Tensor&) -> bool {
             throw nb::type_error(
                 "a tensor is neither true nor false; compare it with None, or take .item() or "
                 ".numpy()");
           })
      .def("__repr__", describe)
      .def("__reduce__", reduce_tensor, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"),
           "Its checkpoint and which of its tensors this is, or a part of which: not its "
           "numbers.")
      .def("__array__", to_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro("__array_interface__", array_interface,
                   nb::sig("def __array_interface__(self) -> dict[str, typing.Any]"))
      .def(
          "__dlpack__",
          [](const Tensor& tensor, const nb::kwargs& kwargs) { return to_dlpack(tensor, kwargs); },
          nb::sig("def __dlpack__(self, *, stream: None = None, max_version: tuple[int, int] | "
                  "None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = "
                  "None) -> typing.Any"),
          R"(A DLPack capsule; flagged read-only unless the checkpoint was opened writable, or copy=True.

BufferError for a consumer that asks for the unversioned form, which cannot carry the flag.)")
      .def(
          "__dlpack_device__", [](const Tensor&) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"), "(1, 0): the CPU.");
  module.def(
      "numpy_word", numpy_word, nb::sig("def numpy_word(dtype: str, /) -> tuple[str, bool]"),
      "What numpy calls a dtype, or the package ml_dtypes where the second is true; empty if "
      "neither has it.");
  module.def("part_of", part_of,
             nb::sig("def part_of(tensor: Tensor, offset: int, shape: tuple[int, ...], strides: "
                     "tuple[int, ...], /) -> Tensor"),
             "Those elements of a tensor, as a subscript once picked them; all in elements.");
  module.def(
      "torch_at_once", to_torch_at_once,
      nb::sig("def torch_at_once(tensors: list[typing.Any], /) -> list[typing.Any]"),
      "Tensors of one checkpoint as those of torch; None for each that torch's functions have "
      "to make, since it shares its storage with another one of the list or is in pieces.");
}

}  // namespace weightmap::python
