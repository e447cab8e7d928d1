#include <nanobind/nanobind.h>

#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/options.hpp"
#include "python/src/tensor.hpp"
#include "python/src/torch_door.hpp"

// nanobind's own entry point gets another name, so that ours comes before it.
extern "C" PyObject* weightmap_core_init();
#define PyInit__core weightmap_core_init

NB_MODULE(_core, module) {
  // Arrays that a program still holds when it ends are no leak.
  nanobind::set_leak_warnings(false);
  module.doc() = "The C++ library as Python sees it. Use the package weightmap instead.";
  module.attr("version") = WEIGHTMAP_VERSION;
  weightmap::python::bind_mapped_bytes(module);
  weightmap::python::bind_tensor(module);
  weightmap::python::bind_tensor_buffer(module);
  weightmap::python::bind_options(module);
  weightmap::python::bind_checkpoint(module);
  weightmap::python::bind_staging(module);
  weightmap::python::bind_remote(module);
  weightmap::python::bind_files(module);
  weightmap::python::bind_deltas(module);
  weightmap::python::bind_torch_door(module);
  weightmap::python::bind_writer(module);
  weightmap::python::bind_safetensors_writer(module);
  weightmap::python::bind_fill(module);
  weightmap::python::bind_cuda(module);
}

#undef PyInit__core

// The types of the module belong to the interpreter that made them, and would end with it. Newer
// Pythons refuse this themselves.
extern "C" NB_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return weightmap_core_init();
  PyErr_SetString(PyExc_ImportError, "weightmap works in the main interpreter only");
  return nullptr;
}
