#include "runtime/torch/names.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace weightmap::torch {
namespace {

using namespace std::string_view_literals;

template <class T>
using Entry = std::pair<std::string_view, T>;

template <class T, std::size_t N>
std::optional<T> lookup(const std::array<Entry<T>, N>& table, std::string_view name) noexcept {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  return std::nullopt;
}

constexpr std::array<Entry<Rebuild>, 7> rebuild_functions = {{
    {"_rebuild_tensor_v2", Rebuild::tensor_v2},
    {"_rebuild_tensor_v3", Rebuild::tensor_v3},
    {"_rebuild_parameter", Rebuild::parameter},
    {"_rebuild_parameter_with_state", Rebuild::parameter_with_state},
    {"_rebuild_qtensor", Rebuild::qtensor},
    {"_rebuild_tensor", Rebuild::tensor},
    {"_rebuild_device_tensor_from_cpu_tensor", Rebuild::device_tensor_from_cpu},
}};

constexpr std::array<Entry<DType>, 17> storage_types = {{
    {"FloatStorage", DType::float32},
    {"HalfStorage", DType::float16},
    {"BFloat16Storage", DType::bfloat16},
    {"DoubleStorage", DType::float64},
    {"LongStorage", DType::int64},
    {"IntStorage", DType::int32},
    {"ShortStorage", DType::int16},
    {"CharStorage", DType::int8},
    {"ByteStorage", DType::uint8},
    {"BoolStorage", DType::boolean},
    {"ComplexDoubleStorage", DType::complex128},
    {"ComplexFloatStorage", DType::complex64},
    {"QInt8Storage", DType::qint8},
    {"QUInt8Storage", DType::quint8},
    {"QInt32Storage", DType::qint32},
    {"QUInt4x2Storage", DType::quint4x2},
    {"QUInt2x4Storage", DType::quint2x4},
}};

bool begins_with_module(std::string_view module, std::string_view package) noexcept {
  return module.starts_with(package) &&
         (module.size() == package.size() || module[package.size()] == '.');
}

// Whole packages that give access to the machine.
constexpr std::array dangerous_packages = {"os"sv,
                                           "posix"sv,
                                           "nt"sv,
                                           "sys"sv,
                                           "subprocess"sv,
                                           "commands"sv,
                                           "runpy"sv,
                                           "pty"sv,
                                           "socket"sv,
                                           "ctypes"sv,
                                           "importlib"sv,
                                           "shutil"sv,
                                           "pip"sv,
                                           "webbrowser"sv,
                                           "platform"sv,
                                           "code"sv,
                                           "codeop"sv,
                                           "pdb"sv,
                                           "bdb"sv,
                                           "timeit"sv,
                                           "cProfile"sv,
                                           "profile"sv,
                                           "trace"sv,
                                           "threading"sv,
                                           "multiprocessing"sv,
                                           "asyncio"sv,
                                           "signal"sv,
                                           "http"sv,
                                           "urllib"sv,
                                           "urllib2"sv,
                                           "requests"sv,
                                           "httplib"sv,
                                           "ftplib"sv,
                                           "smtplib"sv,
                                           "ssl"sv,
                                           "pickle"sv,
                                           "_pickle"sv,
                                           "dill"sv,
                                           "cloudpickle"sv,
                                           "marshal"sv,
                                           "types"sv,
                                           "inspect"sv,
                                           "idlelib"sv,
                                           "lib2to3"sv,
                                           "doctest"sv,
                                           "pydoc"sv,
                                           "venv"sv,
                                           "ensurepip"sv,
                                           "torch.hub"sv,
                                           "torch.jit"sv,
                                           "torch.utils.bottleneck"sv,
                                           "torch.utils.collect_env"sv,
                                           "torch.utils.cpp_extension"sv,
                                           "torch._inductor"sv,
                                           "torch._dynamo.guards"sv,
                                           "torch.fx.experimental.symbolic_shapes"sv,
                                           "torch.distributed.rpc"sv};

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> dangerous_torch = {{
    {"torch", "load"},
    {"torch.serialization", "load"},
    {"torch", "compile"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.utils._config_module", "load_config"},
}};

constexpr std::array dangerous_builtins = {
    "eval"sv,   "exec"sv, "compile"sv,   "getattr"sv, "setattr"sv,    "delattr"sv,    "globals"sv,
    "locals"sv, "vars"sv, "open"sv,      "input"sv,   "breakpoint"sv, "__import__"sv, "execfile"sv,
    "apply"sv,  "file"sv, "raw_input"sv, "reload"sv,  "map"sv,        "filter"sv};

constexpr std::array dangerous_operators = {"attrgetter"sv, "methodcaller"sv, "itemgetter"sv};

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& list, std::string_view name) noexcept {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

Rebuild rebuild_function(std::string_view module, std::string_view name) noexcept {
  if (module == "torch._utils") return lookup(rebuild_functions, name).value_or(Rebuild::none);
  if (module == "torch._tensor" && name == "_rebuild_from_type_v2") return Rebuild::from_type_v2;
  return Rebuild::none;
}

std::optional<StorageType> storage_type(std::string_view module, std::string_view name) noexcept {
  if (module == "torch.storage" && name == "UntypedStorage") return StorageType{DType::uint8, true};
  if (module != "torch" && module != "torch.cuda") return std::nullopt;
  const std::optional<DType> dtype = lookup(storage_types, name);
  if (!dtype) return std::nullopt;
  return StorageType{*dtype, false};
}

std::optional<DType> dtype_global(std::string_view module, std::string_view name) noexcept {
  return module == "torch" ? dtype_from_string(name) : std::nullopt;
}

bool is_ordered_dict(std::string_view module, std::string_view name) noexcept {
  return module == "collections" && name == "OrderedDict";
}

bool is_dangerous(std::string_view module, std::string_view name) noexcept {
  if (module == "builtins" || module == "__builtin__") return holds(dangerous_builtins, name);
  if (module == "operator" || module == "_operator") return holds(dangerous_operators, name);
  for (const auto& [known_module, known_name] : dangerous_torch)
    if (known_module == module && known_name == name) return true;
  return std::any_of(
      dangerous_packages.begin(), dangerous_packages.end(),
      [module](std::string_view package) { return begins_with_module(module, package); });
}

}  // namespace weightmap::torch
