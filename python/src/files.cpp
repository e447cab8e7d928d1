// What acts on files that need not be open.
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mmap/pages/write_protection.hpp"
#include "python/src/bindings.hpp"
#include "python/src/checkpoint.hpp"
#include "python/src/errors.hpp"
#include "python/src/long_call.hpp"
#include "python/src/options.hpp"
#include "python/src/text.hpp"
#include "runtime/services/inspect/list_globals.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "runtime/system/process/runtime_directory.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

nb::tuple evict(const nb::bytes& path, nb::handle progress) {
  const std::filesystem::path file = text_of(path);
  LongCall call(progress);
  const Result<EvictReport> evicted =
      call.run([&] { return weightmap::evict(file, call.progress()); });
  const EvictReport report = value_or_raise(evicted);
  return nb::make_tuple(report.file_bytes, report.cached_before, report.cached_after,
                        report.unwritten_bytes, report.lives_in_memory);
}

nb::tuple publish(const nb::bytes& from, const nb::bytes& target, bool copy, bool crc,
                  bool any_content, bool any_format, nb::handle progress) {
  const std::filesystem::path source = text_of(from);
  const std::filesystem::path name = text_of(target);
  LongCall call(progress);
  PublishOptions options;
  options.copy = copy;
  options.verify_crc = crc;
  options.any_content = any_content;
  options.any_format = any_format;
  options.progress = call.progress();
  const Result<PublishReport> published =
      call.run([&] { return weightmap::publish(source, name, options); });
  const PublishReport report = value_or_raise(published);
  return nb::make_tuple(generation_fields(report.generation), report.replaced, report.copied,
                        report.bytes, to_bytes(report.previous.native()));
}

// Each global as (module, name, verdict), pickle for pickle. Raises the first fault that there is.
nb::list list_globals(const nb::bytes& path, const nb::dict& options) {
  const std::filesystem::path file = text_of(path);
  const OpenOptions read = read_options(options, false);
  const FileGlobals listed =
      value_or_raise(without_gil([&] { return weightmap::list_globals(file, read); }));
  nb::list found;
  for (const PickleGlobals& pickle : listed.pickles)
    for (const NamedGlobal& global : pickle.globals)
      found.append(nb::make_tuple(to_str(global.module), to_str(global.name),
                                  to_str(to_string(global.verdict))));
  for (const PickleGlobals& pickle : listed.pickles)
    if (pickle.fault) raise(*pickle.fault);
  return found;
}

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

void bind_files(nb::module_& module) {
  module.def("evict", evict, nb::arg("path"), nb::arg("progress").none(),
             nb::sig("def evict(path: bytes, progress: typing.Callable[[int, int], typing.Any] | "
                     "None, /) -> tuple[int, int, int, int, bool]"));
  module.def("publish", publish, nb::arg("source"), nb::arg("target"), nb::arg("copy"),
             nb::arg("crc"), nb::arg("any_content"), nb::arg("any_format"),
             nb::arg("progress").none(),
             nb::sig("def publish(source: bytes, target: bytes, copy: bool, crc: bool, "
                     "any_content: bool, any_format: bool, progress: "
                     "typing.Callable[[int, int], typing.Any] | None, /) -> "
                     "tuple[tuple[int, int, int, int, int], bool, bool, int, bytes]"));
  module.def("guard_is_active", guard_is_active,
             "Whether a SIGBUS comes to the guard first; False before the first guarded open.");
  module.def("list_globals", list_globals,
             nb::sig("def list_globals(path: bytes, options: dict[str, typing.Any], /) -> "
                     "list[tuple[str, str, str]]"),
             "What the pickles of a file name: module, name and verdict of each.");
  module.def(
      "torch_safe_globals", [] { return to_strs(torch_safe_globals()); },
      nb::sig("def torch_safe_globals() -> list[str]"), "What torch allows by default.");
  module.def("protect", protect, nb::sig("def protect(path: bytes, /) -> tuple[int, int, int]"),
             "How many mappings of a file were made read-only, their bytes, and how many of them "
             "had been written to.");
  module.def("file_mappings", file_mappings,
             nb::sig("def file_mappings(addresses: list[int], counted: bool, /) -> list[tuple[int, "
                     "int, bool, int]]"),
             "The mappings of files in this process that have one of these addresses: begin, end, "
             "whether it is writable, and bytes that were copied by writing, if that is counted.");
  module.def("runtime_directory", directory, nb::sig("def runtime_directory() -> bytes"),
             "Where processes of this user meet; it is made if it is not there.");
  module.def("processes", processes,
             nb::sig("def processes(paths: list[bytes], /) -> tuple[list[dict[str, typing.Any]], "
                     "int]"),
             "What each process has mapped, and how many could not be looked at.");
}

}  // namespace weightmap::python
