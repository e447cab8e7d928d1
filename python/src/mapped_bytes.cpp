#include "python/src/mapped_bytes.hpp"

#include "python/src/errors.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

int get_mapped_bytes(PyObject* self, Py_buffer* view, int flags) noexcept {
  if (!nb::inst_ready(self)) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the object was never made");
    return -1;
  }
  const auto& bytes = *nb::inst_ptr<MappedBytes>(self);
  return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(bytes.bytes.data()),
                           static_cast<Py_ssize_t>(bytes.bytes.size()), bytes.writable ? 0 : 1,
                           flags);
}

PyType_Slot mapped_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_mapped_bytes)},
                              {0, nullptr}};

}  // namespace

MappedBytes mapped_bytes(const Owner& owner) {
  value_or_raise(owner->check_bytes());
  const Checkpoint& checkpoint = owner->checkpoint();
  return {owner, checkpoint.mapping(), checkpoint.info().writable};
}

MappedBytes lent_bytes(const Owner& owner, std::uint64_t storage_bytes,
                       std::optional<CopyOnWrite> how) {
  return {owner, value_or_raise(owner->lend(storage_bytes, how)), true};
}

void bind_mapped_bytes(nb::module_& module) {
  nb::class_<MappedBytes>(module, "MappedBytes", nb::type_slots(mapped_slots),
                          "The bytes of a mapped file, by the buffer protocol. Keeps the mapping "
                          "alive.")
      .def("__len__", [](const MappedBytes& self) { return self.bytes.size(); })
      .def_prop_ro("address",
                   [](const MappedBytes& self) {
                     return reinterpret_cast<std::uintptr_t>(self.bytes.data());
                   })
      .def_prop_ro("writable", [](const MappedBytes& self) { return self.writable; });
}

}  // namespace weightmap::python
