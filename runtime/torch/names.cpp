#include "runtime/torch/names.hpp"

#include <algorithm>
#include <array>
#include <utility>

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

constexpr std::array<Named<Rebuild>, 7> rebuild_functions = {{
    {"_rebuild_tensor_v2", Rebuild::tensor_v2},
    {"_rebuild_tensor_v3", Rebuild::tensor_v3},
    {"_rebuild_parameter", Rebuild::parameter},
    {"_rebuild_parameter_with_state", Rebuild::parameter_with_state},
    {"_rebuild_qtensor", Rebuild::qtensor},
    {"_rebuild_tensor", Rebuild::tensor},
    {"_rebuild_device_tensor_from_cpu_tensor", Rebuild::device_tensor_from_cpu},
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

std::string_view storage_class(DType dtype) noexcept {
  for (const auto& [name, known] : storage_types)
    if (known == dtype) return name;
  return {};
}

std::optional<DType> dtype_global(std::string_view module, std::string_view name) noexcept {
  return module == "torch" ? dtype_from_string(name) : std::nullopt;
}

bool is_ordered_dict(std::string_view module, std::string_view name) noexcept {
  return module == "collections" && name == "OrderedDict";
}

bool is_size(std::string_view module, std::string_view name) noexcept {
  return module == "torch" && name == "Size";
}

bool is_dict_class(std::string_view module, std::string_view name) noexcept {
  return module == "collections" &&
         (name == "OrderedDict" || name == "defaultdict" || name == "Counter");
}

bool is_harmful(std::string_view module, std::string_view name) noexcept {
  return std::any_of(harmful_names.begin(), harmful_names.end(), [&](const HarmfulName& harmful) {
    if (!module.starts_with(harmful.module)) return false;
    if (module.size() == harmful.module.size()) return harmful.name.empty() || harmful.name == name;
    return harmful.reach == HarmfulName::with_submodules && module[harmful.module.size()] == '.';
  });
}

bool is_tensor_property(std::string_view attribute) noexcept {
  return std::binary_search(tensor_properties.begin(), tensor_properties.end(), attribute);
}

}  // namespace weightmap::torch
