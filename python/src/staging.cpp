#include <nanobind/stl/string.h>

#include <filesystem>
#include <string>
#include <utility>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/mapped_bytes.hpp"
#include "python/src/text.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

StagedFile stage(const nb::bytes& path, const nb::bytes& name, std::uint64_t budget_bytes,
                 bool pinnable, nb::handle progress) {
  const std::filesystem::path file = text_of(path);
  StageOptions options;
  options.name = text_of(name);
  options.budget_bytes = budget_bytes;
  options.pinnable = pinnable;
  LongCall call(progress);
  options.progress = call.progress();
  Result<StagedFile> staged = call.run([&] { return weightmap::stage(file, options); });
  return value_or_raise(std::move(staged));
}

nb::bytes staged_path(const StagedFile& staged) { return to_bytes(staged.path().native()); }

nb::dict report(const StagedFile& staged) {
  const StageReport& report = staged.report();
  nb::dict fields;
  fields["file_bytes"] = report.file_bytes;
  fields["direct_bytes"] = report.direct_bytes;
  fields["cached_bytes"] = report.cached_bytes;
  fields["dropped_bytes"] = report.dropped_bytes;
  fields["why_not_direct"] = report.why_not_direct;
  fields["huge_bytes"] = report.huge_bytes;
  fields["sealed"] = report.sealed;
  fields["seconds"] = seconds(report.time);
  return fields;
}

void remove(const nb::bytes& name) { value_or_raise(remove_staged(text_of(name))); }

}  // namespace

void bind_staging(nb::module_& module) {
  nb::class_<StagedFile>(module, "StagedFile")
      .def("descriptor", &StagedFile::descriptor)
      .def("path", staged_path)
      .def(
          "pinnable_memory",
          [](const StagedFile& staged) {
            return MappedBytes{nullptr, staged.pinnable_memory(), true};
          },
          nb::keep_alive<0, 1>(), nb::sig("def pinnable_memory(self) -> MappedBytes"))
      .def("report", report, nb::sig("def report(self) -> dict[str, typing.Any]"));
  module.def("stage", stage, nb::arg("path"), nb::arg("name"), nb::arg("budget_bytes"),
             nb::arg("pinnable"), nb::arg("progress").none(),
             nb::sig("def stage(path: bytes, name: bytes, budget_bytes: int, pinnable: bool, "
                     "progress: typing.Callable[[int, int], typing.Any] | None, /) -> StagedFile"));
  module.def("remove_staged", remove, nb::sig("def remove_staged(name: bytes, /) -> None"));
}

}  // namespace weightmap::python
