#include <nanobind/nanobind.h>

#include "python/src/checkpoint.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/processes.hpp"
#include "python/src/staging.hpp"
#include "python/src/tensor.hpp"

NB_MODULE(_core, module) {
  // Arrays that a program still holds when it ends are no leak.
  nanobind::set_leak_warnings(false);
  module.doc() = "The C++ library as Python sees it. Use the package weightmap instead.";
  module.attr("version") = WEIGHTMAP_VERSION;
  weightmap::python::bind_mapped_bytes(module);
  weightmap::python::bind_tensor(module);
  weightmap::python::bind_checkpoint(module);
  weightmap::python::bind_staging(module);
  weightmap::python::bind_processes(module);
}
