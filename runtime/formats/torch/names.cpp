#include "runtime/formats/torch/names.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "runtime/base/bytes/escape.hpp"

namespace weightmap::torch {
namespace {

using namespace std::string_view_literals;

template <class T>
using Named = std::pair<std::string_view, T>;

template <class T, std::size_t N>
std::optional<T> lookup(const std::array<Named<T>, N>& table, std::string_view name) noexcept {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  return std::nullopt;
}

constexpr std::array<Named<Rebuild>, 13> rebuild_functions = {{
    {"_rebuild_tensor_v2", Rebuild::tensor_v2},
    {"_rebuild_tensor_v3", Rebuild::tensor_v3},
    {"_rebuild_parameter", Rebuild::parameter},
    {"_rebuild_parameter_with_state", Rebuild::parameter_with_state},
    {"_rebuild_qtensor", Rebuild::qtensor},
    {"_rebuild_tensor", Rebuild::tensor},
    {"_rebuild_device_tensor_from_cpu_tensor", Rebuild::device_tensor_from_cpu},
    {"_rebuild_sparse_tensor", Rebuild::sparse},
    {"_rebuild_nested_tensor", Rebuild::nested},
    {"_rebuild_meta_tensor_no_storage", Rebuild::meta},
    {"_rebuild_wrapper_subclass", Rebuild::wrapper_subclass},
    {"_rebuild_device_tensor_from_numpy", Rebuild::device_tensor_from_array},
    {"_rebuild_xla_tensor", Rebuild::device_tensor_from_array},
}};

constexpr std::array<Named<DType>, 17> storage_types = {{
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

// TorchScript's names of storages for which torch.save has no class: the C++ name of the type
// (c10::ScalarType) and "Storage".
constexpr auto script_storage_types = std::to_array<Named<DType>>({
    {"ComplexHalfStorage", DType::complex32},
    {"UInt16Storage", DType::uint16},
    {"UInt32Storage", DType::uint32},
    {"UInt64Storage", DType::uint64},
    {"Float8_e5m2Storage", DType::float8_e5m2},
    {"Float8_e4m3fnStorage", DType::float8_e4m3fn},
    {"Float8_e5m2fnuzStorage", DType::float8_e5m2fnuz},
    {"Float8_e4m3fnuzStorage", DType::float8_e4m3fnuz},
    {"Float8_e8m0fnuStorage", DType::float8_e8m0fnu},
    {"Float4_e2m1fn_x2Storage", DType::float4_e2m1fn_x2},
    {"Bits1x8Storage", DType::bits1x8},
    {"Bits2x4Storage", DType::bits2x4},
    {"Bits4x2Storage", DType::bits4x2},
    {"Bits8Storage", DType::bits8},
    {"Bits16Storage", DType::bits16},
});

constexpr auto tensor_properties = std::to_array<std::string_view>({
    "H",
    "T",
    "__class__",
    "__cuda_array_interface__",
    "__dict__",
    "__weakref__",
    "_backward_hooks",
    "_base",
    "_cdata",
    "_grad",
    "_grad_fn",
    "_has_symbolic_sizes_strides",
    "_post_accumulate_grad_hooks",
    "_python_dispatch",
    "_version",
    "data",
    "device",
    "dtype",
    "grad",
    "grad_dtype",
    "grad_fn",
    "imag",
    "is_cpu",
    "is_cuda",
    "is_ipu",
    "is_leaf",
    "is_maia",
    "is_meta",
    "is_mkldnn",
    "is_mps",
    "is_mtia",
    "is_nested",
    "is_quantized",
    "is_sparse",
    "is_sparse_csr",
    "is_vulkan",
    "is_xla",
    "is_xpu",
    "itemsize",
    "layout",
    "mH",
    "mT",
    "name",
    "names",
    "nbytes",
    "ndim",
    "output_nr",
    "real",
    "requires_grad",
    "retains_grad",
    "shape",
    "volatile",
});
static_assert(std::is_sorted(tensor_properties.begin(), tensor_properties.end()));

struct Renamed {
  GlobalName before;
  GlobalName now;
};
constexpr auto renamed_globals = std::to_array<Renamed>({
    {{"__builtin__", "xrange"}, {"builtins", "range"}},
    {{"__builtin__", "reduce"}, {"functools", "reduce"}},
    {{"__builtin__", "intern"}, {"sys", "intern"}},
    {{"__builtin__", "unichr"}, {"builtins", "chr"}},
    {{"__builtin__", "unicode"}, {"builtins", "str"}},
    {{"__builtin__", "long"}, {"builtins", "int"}},
    {{"__builtin__", "basestring"}, {"builtins", "str"}},
    {{"itertools", "izip"}, {"builtins", "zip"}},
    {{"itertools", "imap"}, {"builtins", "map"}},
    {{"itertools", "ifilter"}, {"builtins", "filter"}},
    {{"itertools", "ifilterfalse"}, {"itertools", "filterfalse"}},
    {{"itertools", "izip_longest"}, {"itertools", "zip_longest"}},
    {{"UserDict", "IterableUserDict"}, {"collections", "UserDict"}},
    {{"exceptions", "StandardError"}, {"builtins", "Exception"}},
});

constexpr std::array<Named<std::string_view>, 11> renamed_modules = {{
    {"__builtin__", "builtins"},
    {"copy_reg", "copyreg"},
    {"Queue", "queue"},
    {"repr", "reprlib"},
    {"_abcoll", "collections.abc"},
    {"UserDict", "collections"},
    {"UserList", "collections"},
    {"UserString", "collections"},
    {"whichdb", "dbm"},
    {"StringIO", "io"},
    {"cStringIO", "io"},
}};

}  // namespace

Rebuild rebuild_function(const Value& global) noexcept {
  const std::string_view module = global.module();
  const std::string_view name = global.name();
  if (module == "torch.nested._internal.nested_tensor")
    return name == "_rebuild_njt" ? Rebuild::jagged : Rebuild::none;
  if (module == "torch._utils") return lookup(rebuild_functions, name).value_or(Rebuild::none);
  if (module == "torch._tensor" && name == "_rebuild_from_type_v2") return Rebuild::from_type_v2;
  return Rebuild::none;
}

std::optional<StorageType> storage_type(std::string_view module, std::string_view name) noexcept {
  if (module == "torch.storage" && name == "UntypedStorage") return StorageType{DType::uint8, true};
  if (module != "torch" && module != "torch.cuda") return std::nullopt;
  std::optional<DType> dtype = lookup(storage_types, name);
  if (!dtype) dtype = lookup(script_storage_types, name);
  if (!dtype) return std::nullopt;
  return StorageType{*dtype, false};
}

QuantizationScheme quantization_scheme(const Value& global) noexcept {
  if (is_named(global, "torch", "per_tensor_affine")) return QuantizationScheme::per_tensor;
  if (is_named(global, "torch", "per_channel_affine") ||
      is_named(global, "torch", "per_channel_affine_float_qparams"))
    return QuantizationScheme::per_channel;
  return QuantizationScheme::none;
}

std::optional<LegacyTensorClass> legacy_tensor_class(const Value& global) noexcept {
  const std::string_view module = global.module();
  std::string_view name = global.name();
  constexpr std::string_view ending = "Tensor";
  if (!name.ends_with(ending) || (module != "torch" && module != "torch.cuda")) return std::nullopt;
  if (name == ending) return LegacyTensorClass{};
  name.remove_suffix(ending.size());
  for (const auto& [storage, dtype] : storage_types)
    if (storage.starts_with(name) && storage.substr(name.size()) == "Storage")
      return LegacyTensorClass{dtype};
  return std::nullopt;
}

std::string_view storage_class(DType dtype) noexcept {
  for (const auto& [name, known] : storage_types)
    if (known == dtype) return name;
  return {};
}

std::optional<DType> dtype_global(std::string_view module, std::string_view name) noexcept {
  const std::optional<DType> dtype = module == "torch" ? dtype_from_string(name) : std::nullopt;
  // torch has none of the others.
  return dtype && !is_blocked(*dtype) && !is_opaque(*dtype) ? dtype : std::nullopt;
}

bool is_type_tag(const Value& global) noexcept {
  constexpr std::string_view tags[] = {"restore_type_tag", "build_intlist", "build_tensorlist",
                                       "build_doublelist", "build_boollist"};
  return global.module() == "torch.jit._pickle" &&
         std::ranges::find(tags, global.name()) != std::end(tags);
}

bool is_dict_class(const Value& global) noexcept {
  return is_ordered_dict(global) || is_named(global, "collections", "defaultdict") ||
         is_named(global, "collections", "Counter") || is_named(global, "builtins", "dict") ||
         is_named(global, "__builtin__", "dict");
}

GlobalName in_python_3(std::string_view module, std::string_view name) noexcept {
  for (const Renamed& renamed : renamed_globals)
    if (renamed.before.module == module && renamed.before.name == name) return renamed.now;
  return {lookup(renamed_modules, module).value_or(module), name};
}

bool is_tensor_property(std::string_view attribute) noexcept {
  return std::binary_search(tensor_properties.begin(), tensor_properties.end(), attribute);
}

std::string full_name(std::string_view module, std::string_view name) {
  return std::string(module) + "." + std::string(name);
}

std::string qualified_name(std::string_view module, std::string_view name) {
  return bytes::escape(full_name(module, name));
}

}  // namespace weightmap::torch
