// The globals of a pickle that are refused whoever opens it, since they can only do harm.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weightmap::torch {

// Globals that can only do harm where a pickle is loaded by running it: a row for each module, as
// in docs/refused-names.md. Nothing is ever called here, so the refusal does not provide the
// safety; it states clearly what the file is. A global that can also be innocent is reported, and
// the file opens.
struct HarmfulNames {
  enum Reach : std::uint8_t { module_only, with_submodules };
  std::string_view module;
  std::string_view names = {};  // with a blank between two; empty: every name of the module
  Reach reach = module_only;
};

inline constexpr auto harmful_names = std::to_array<HarmfulNames>({
    // Modules that give access to the machine.
    {"os", "", HarmfulNames::with_submodules},
    {"posix"},
    {"nt"},
    {"sys"},
    {"subprocess"},
    {"_posixsubprocess"},
    {"ctypes", "", HarmfulNames::with_submodules},
    {"_ctypes"},
    {"importlib", "", HarmfulNames::with_submodules},
    {"imp"},
    {"runpy"},
    {"pty"},
    {"socket"},
    {"_socket"},
    {"shutil"},
    {"webbrowser"},
    {"pip", "", HarmfulNames::with_submodules},
    {"ensurepip", "", HarmfulNames::with_submodules},
    {"idlelib", "", HarmfulNames::with_submodules},
    {"lib2to3", "", HarmfulNames::with_submodules},
    {"numpy.f2py", "", HarmfulNames::with_submodules},
    {"torch.hub"},
    {"torch.utils.bottleneck", "", HarmfulNames::with_submodules},
    {"torch.utils.collect_env"},
    {"torch.utils.cpp_extension"},
    {"torch._inductor", "", HarmfulNames::with_submodules},
    {"torch.distributed.rpc", "", HarmfulNames::with_submodules},
    // Functions that run text as code, or change or reach anything by a name from the file.
    // getattr() is not among them, since torch.save's protocol 2 spells Outer.Inner with it.
    {"builtins",
     "eval exec compile open setattr delattr globals locals vars input breakpoint __import__"},
    {"__builtin__", "execfile apply file raw_input reload"},
    {"io", "open"},
    {"_io", "open FileIO"},
    {"operator", "attrgetter methodcaller"},
    {"_operator", "attrgetter methodcaller"},
    {"code", "interact InteractiveInterpreter InteractiveInterpreter.runcode InteractiveConsole"},
    {"commands", "getoutput getstatusoutput Popen run call check_call check_output"},
    {"asyncio", "create_subprocess_exec create_subprocess_shell"},
    {"asyncio.unix_events", "_UnixSubprocessTransport._start"},
    {"multiprocessing.util", "spawnv_passfds"},
    {"pdb", "run runeval runcall set_trace"},
    {"bdb", "Bdb.run Bdb.runeval Bdb.runcall"},
    {"timeit", "timeit repeat main Timer"},
    {"cProfile", "run runctx"},
    {"profile", "run runctx Profile.run Profile.runctx"},
    {"trace", "Trace.run Trace.runctx"},
    {"doctest", "debug_script debug_src"},
    {"pydoc", "pipepager tempfilepager"},
    {"urllib", "urlopen urlretrieve"},
    {"urllib.request", "urlopen urlretrieve"},
    {"urllib2", "urlopen urlretrieve"},
    {"requests", "get post request"},
    {"requests.api", "get post request"},
    {"numpy.testing", "runstring"},
    {"numpy.testing._private.utils", "runstring"},
    // Functions that load, and so run, another file or more bytes.
    {"pickle", "load loads"},
    {"_pickle", "load loads"},
    {"cPickle", "load loads"},
    {"dill", "load loads"},
    {"dill._dill", "load loads"},
    {"cloudpickle", "load loads"},
    {"joblib", "load"},
    {"pandas", "read_pickle"},
    {"pandas.io.pickle", "read_pickle"},
    {"marshal", "load loads"},
    {"torch", "load compile"},
    {"torch.serialization", "load"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.jit", "load"},
    {"torch.jit._serialization", "load"},
    {"torch.jit.unsupported_tensor_ops", "execWrapper"},
    {"torch.ops", "load_library"},
    {"torch._ops", "_Ops.load_library"},
    {"torch.classes", "load_library"},
    {"torch._classes", "_Classes.load_library"},
    {"torch._dynamo.guards", "GuardBuilder.get"},
    {"torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression"},
    {"torch.utils._config_module", "load_config ConfigModule.load_config"},
    {"torch.utils.data.datapipes.utils.decoder", "basichandlers"},
});

// True for one of these names, including its Python 2 spelling.
bool is_harmful(std::string_view module, std::string_view name) noexcept;

}  // namespace weightmap::torch
