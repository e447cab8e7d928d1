#include "runtime/services/inspect/processes.hpp"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mmap/pages/write_protection.hpp"
#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/text.hpp"
#include "runtime/system/process/runtime_directory.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

nb::dict fields_of(const MappedCheckpoint& mapped) {
  nb::dict fields;
  fields["process"] = mapped.process;
  fields["command"] = to_bytes(mapped.command);
  fields["file"] = to_bytes(mapped.file);
  fields["version"] = to_str(to_string(mapped.version));
  fields["device"] = mapped.device;
  fields["inode"] = mapped.inode;
  fields["file_bytes"] = mapped.file_bytes;
  fields["has_shared"] = mapped.has_shared;
  fields["has_private"] = mapped.has_private;
  fields["writable"] = mapped.writable;
  fields["mapped_bytes"] = mapped.mapped_bytes;
  fields["resident_bytes"] = mapped.resident_bytes;
  fields["pss_bytes"] = mapped.pss_bytes;
  fields["anonymous_bytes"] = mapped.anonymous_bytes;
  fields["huge_mapped_bytes"] = mapped.huge_mapped_bytes;
  fields["locked_bytes"] = mapped.locked_bytes;
  return fields;
}

nb::tuple processes(const nb::list& paths) {
  std::vector<std::filesystem::path> files;
  for (nb::handle path : paths) files.emplace_back(text_of(nb::cast<nb::bytes>(path)));
  const ProcessesReport report =
      value_or_raise(without_gil([&] { return weightmap::processes(files); }));
  nb::list mapped;
  for (const MappedCheckpoint& one : report.mapped) mapped.append(fields_of(one));
  return nb::make_tuple(mapped, report.unreadable_processes);
}

nb::tuple protect(const nb::bytes& path) {
  const std::filesystem::path file = text_of(path);
  const WriteProtection done = value_or_raise(without_gil([&] { return protect_mappings(file); }));
  return nb::make_tuple(done.mappings, done.bytes, done.anonymous_bytes);
}

nb::list file_mappings(const std::vector<std::uintptr_t>& addresses, bool counted) {
  nb::list mappings;
  const std::vector<FileMapping> looked =
      value_or_raise(without_gil([&] { return weightmap::file_mappings(addresses, counted); }));
  for (const FileMapping& each : looked)
    mappings.append(nb::make_tuple(each.begin, each.end, each.writable, each.anonymous_bytes));
  return mappings;
}

nb::bytes directory() { return to_bytes(value_or_raise(runtime_directory()).native()); }

}  // namespace

void bind_processes(nb::module_& module) {
  module.def("protect", protect, nb::arg("path"),
             nb::sig("def protect(path: bytes, /) -> tuple[int, int, int]"),
             "How many mappings of a file were made read-only, their bytes, and how many of them "
             "had been written to.");
  module.def("file_mappings", file_mappings, nb::arg("addresses"), nb::arg("counted"),
             nb::sig("def file_mappings(addresses: list[int], counted: bool, /) -> list[tuple[int, "
                     "int, bool, int]]"),
             "The mappings of files in this process that have one of these addresses: begin, end, "
             "whether it is writable, and bytes that were copied by writing, if that is counted.");
  module.def("runtime_directory", directory, nb::sig("def runtime_directory() -> bytes"),
             "Where processes of this user meet; it is made if it is not there.");
  module.def("processes", processes, nb::arg("paths"),
             nb::sig("def processes(paths: list[bytes], /) -> tuple[list[dict[str, typing.Any]], "
                     "int]"),
             "What each process has mapped, and how many could not be looked at.");
}

}  // namespace weightmap::python
