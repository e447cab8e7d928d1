#include <nanobind/stl/string_view.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

CheckpointFill open_fill(const nb::bytes& path) {
  const std::filesystem::path file = text_of(path);
  return value_or_raise(without_gil([&] { return CheckpointFill::open(file); }));
}

nb::list storages(const CheckpointFill& fill) {
  nb::list listed;
  for (const CheckpointFill::Storage& storage : value_or_raise(fill.storages()))
    listed.append(nb::make_tuple(nb::str(storage.key.data(), storage.key.size()), storage.offset,
                                 storage.nbytes, storage.is_written));
  return listed;
}

// So that writing to the tensor through any mapping of the file cannot fail.
void prepare(CheckpointFill& fill, std::string_view name) {
  value_or_raise(without_gil([&] { return fill.writable_bytes(name); }));
}

void mark_written(const CheckpointFill& fill, std::string_view name) {
  value_or_raise(fill.mark_written(name));
}

void seal(CheckpointFill& fill, nb::handle progress) {
  LongCall call(progress);
  const Progress told = call.progress();
  value_or_raise(call.run([&] { return fill.seal(told); }));
}

}  // namespace

void bind_fill(nb::module_& module) {
  nb::class_<CheckpointFill>(module, "Fill")
      .def("storages", storages,
           "(key, offset, nbytes, whether it is written) of each reserved one.",
           nb::sig("def storages(self) -> list[tuple[str, int, int, bool]]"))
      .def("prepare", prepare, nb::sig("def prepare(self, name: str, /) -> None"))
      .def("mark_written", mark_written, nb::sig("def mark_written(self, name: str, /) -> None"))
      .def("seal", seal, nb::arg().none(),
           nb::sig("def seal(self, progress: collections.abc.Callable[[int, int], object] | None, "
                   "/) -> None"));
  module.def("open_fill", open_fill, nb::sig("def open_fill(path: bytes, /) -> Fill"));
}

}  // namespace weightmap::python
