#include "python/src/torch_door.hpp"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/machine.hpp"
#include "runtime/base/element_format.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// A struct of DLPack before 1.0, which every torch accepts. Neither it nor torch has a flag for
// read-only memory.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};
constexpr const char* capsule_name = "dltensor";  // another one as soon as it is taken

// A ManagedTensor and what it points to. Its last owner may let go in any thread, without the GIL.
struct LentTensor {
  ManagedTensor managed;
  std::shared_ptr<const void> owner;
  std::array<std::int64_t, 2 * TensorView::max_slice_rank> dims;  // shape, then strides
};

void end_loan(ManagedTensor* managed) { delete static_cast<LentTensor*>(managed->context); }

void end_unused(PyObject* capsule) {
  if (void* managed = PyCapsule_IsValid(capsule, capsule_name) != 0
                          ? PyCapsule_GetPointer(capsule, capsule_name)
                          : nullptr)
    end_loan(static_cast<ManagedTensor*>(managed));
}

nb::object lend(const TorchMemory& memory, std::uint8_t dlpack_code) {
  auto lent = std::make_unique<LentTensor>();
  lent->owner = memory.owner;
  std::int64_t* const shape = lent->dims.data();
  std::int64_t* const strides = std::copy(memory.shape.begin(), memory.shape.end(), shape);
  std::copy(memory.strides.begin(), memory.strides.end(), strides);
  nb::dlpack::dltensor& tensor = lent->managed.tensor;
  tensor.data = memory.data;
  tensor.device = {nb::device::cpu::value, 0};
  tensor.ndim = static_cast<std::int32_t>(memory.shape.size());
  tensor.dtype = {dlpack_code, static_cast<std::uint8_t>(8 * element_size(memory.dtype)), 1};
  tensor.shape = shape;
  tensor.strides = strides;
  lent->managed.context = lent.get();
  lent->managed.deleter = end_loan;
  nb::object capsule = checked(PyCapsule_New(&lent->managed, capsule_name, end_unused));
  lent.release();
  return capsule;
}

// The first importer that can be used for a dtype, as far as is known; the number of them if there
// is none. `proven` once it made a tensor as it should.
struct Choice {
  std::uint32_t importer = 0;
  bool proven = false;
};

struct Door {
  nb::object torch;        // the module
  nb::object tensor_type;  // torch.Tensor
  // Functions from capsules to tensors, the best first; none if torch has no door.
  std::vector<nb::object> importers;
  // Functions, of which each answers something false while the door is open.
  std::vector<nb::object> busy;
  std::array<std::atomic<Choice>, dtype_count> choices{};
};

// The door of the only interpreter, kept to its end. nullptr until weightmap._torch.tensors has
// looked for it.
std::atomic<Door*> door = nullptr;

// The previous door is not freed, since another thread may be using it.
void use_torch(const nb::tuple& importers, nb::object torch, const nb::tuple& busy) {
  auto made = std::make_unique<Door>();
  made->tensor_type = torch.attr("Tensor");
  made->torch = std::move(torch);
  for (nb::handle function : importers) made->importers.push_back(nb::borrow(function));
  for (nb::handle function : busy) made->busy.push_back(nb::borrow(function));
  door = made.release();
}

bool is_expected(const Door& open, const nb::object& tensor, const TorchMemory& memory) {
  if (!nb::handle(tensor.type()).is(open.tensor_type)) return false;
  const nb::object dtype =
      nb::getattr(open.torch, std::string(to_string(memory.dtype)).c_str(), nb::none());
  const std::uint64_t bytes = reach_of(memory.shape, memory.strides) * element_size(memory.dtype);
  return nb::object(tensor.attr("dtype")).is(dtype) &&
         nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()) ==
             reinterpret_cast<std::uintptr_t>(memory.data) &&
         nb::cast<std::uint64_t>(tensor.attr("untyped_storage")().attr("nbytes")()) == bytes;
}

// PyObject_CallOneArg(), which the limited API lacks.
PyObject* call(const nb::object& function, const nb::object& argument) {
  PyObject* const arguments[] = {argument.ptr()};
  return PyObject_Vectorcall(function.ptr(), arguments, 1, nullptr);
}

// An error that says what torch cannot do, and not that the program is to end.
bool is_ordinary_error() {
  return PyErr_ExceptionMatches(PyExc_Exception) != 0 &&
         PyErr_ExceptionMatches(PyExc_MemoryError) == 0;
}

// The first tensor of a dtype: by the first importer that makes it as it should be.
nb::object import_first(Door& open, const TorchMemory& memory, std::uint8_t dlpack_code) {
  std::atomic<Choice>& known = open.choices[static_cast<std::size_t>(memory.dtype)];
  Choice choice = known;
  for (; choice.importer < open.importers.size(); ++choice.importer) {
    const nb::object capsule = lend(memory, dlpack_code);
    const nb::object tensor = nb::steal(call(open.importers[choice.importer], capsule));
    if (!tensor.is_valid()) {
      if (!is_ordinary_error()) throw nb::python_error();
      PyErr_Clear();
    } else if (is_expected(open, tensor, memory)) {
      choice.proven = true;
      known = choice;
      return tensor;
    }
  }
  known = choice;
  return {};
}

bool is_true(const nb::object& answer) {
  const int truth = PyObject_IsTrue(answer.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

}  // namespace

std::uint64_t reach_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::int64_t last = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::int64_t steps;
    if (shape[dim] <= 0 || strides[dim] < 0 ||
        __builtin_mul_overflow(shape[dim] - 1, strides[dim], &steps) ||
        __builtin_add_overflow(last, steps, &last))
      return 0;
  }
  return static_cast<std::uint64_t>(last) + 1;
}

bool torch_door_is_open() {
  if (door == nullptr) nb::module_::import_("weightmap._torch.tensors");
  const Door* known = door;
  return known != nullptr && !known->importers.empty() &&
         std::none_of(known->busy.begin(), known->busy.end(), [](const nb::object& function) {
           return is_true(checked(PyObject_CallNoArgs(function.ptr())));
         });
}

nb::object through_torch_door(const TorchMemory& memory) {
  Door& open = *door;
  const Choice choice = open.choices[static_cast<std::size_t>(memory.dtype)];
  const auto code = element_format(memory.dtype).dlpack_code;
  if (choice.importer == open.importers.size() || !code ||
      memory.shape.size() > TensorView::max_slice_rank ||
      reinterpret_cast<std::uintptr_t>(memory.data) % element_size(memory.dtype) != 0)
    return {};
  if (!choice.proven) return import_first(open, memory, *code);
  const nb::object capsule = lend(memory, *code);
  return checked(call(open.importers[choice.importer], capsule));
}

void bind_torch_door(nb::module_& module) {
  module.def("use_torch", use_torch,
             nb::sig("def use_torch(importers: tuple[typing.Any, ...], torch: typing.Any, busy: "
                     "tuple[typing.Any, ...], /) -> None"),
             "By which functions torch makes tensors of DLPack capsules, the best first, and which "
             "ones answer something true while it would do more than that.");
}

}  // namespace weightmap::python
