// Helpers of all parts of weightmap._core, and the parts that only the module itself calls.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace weightmap::python {

void bind_cuda(nanobind::module_& module);
void bind_deltas(nanobind::module_& module);
void bind_files(nanobind::module_& module);
void bind_fill(nanobind::module_& module);
void bind_remote(nanobind::module_& module);
void bind_safetensors_writer(nanobind::module_& module);
void bind_staging(nanobind::module_& module);
void bind_writer(nanobind::module_& module);

// Runs `work` while other threads may run Python.
template <class Work>
auto without_gil(const Work& work) {
  const nanobind::gil_scoped_release release;
  return work();
}

// A new reference that the C API made, or the exception that it has set.
inline nanobind::object checked(PyObject* made) {
  if (made == nullptr) throw nanobind::python_error();
  return nanobind::steal(made);
}

// Paths and other texts of the system come from Python and go there as bytes.
inline std::string text_of(const nanobind::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
inline nanobind::bytes to_bytes(const std::string& text) {
  return nanobind::bytes(text.data(), text.size());
}

inline nanobind::tuple int_tuple(std::span<const std::int64_t> values) {
  nanobind::list list;
  for (const std::int64_t value : values) list.append(value);
  return nanobind::tuple(list);
}

inline double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

}  // namespace weightmap::python
