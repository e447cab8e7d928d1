#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/options.hpp"
#include "python/src/text.hpp"
#include "runtime/services/inspect/list_globals.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

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

nb::list torch_safe_globals() {
  nb::list names;
  for (const std::string_view name : weightmap::torch_safe_globals()) names.append(to_str(name));
  return names;
}

}  // namespace

void bind_globals(nb::module_& module) {
  module.def("list_globals", list_globals, nb::arg("path"), nb::arg("options"),
             nb::sig("def list_globals(path: bytes, options: dict[str, typing.Any], /) -> "
                     "list[tuple[str, str, str]]"),
             "What the pickles of a file name: module, name and verdict of each.");
  module.def("torch_safe_globals", torch_safe_globals,
             nb::sig("def torch_safe_globals() -> list[str]"), "What torch allows by default.");
}

}  // namespace weightmap::python
