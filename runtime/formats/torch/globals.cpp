#include "runtime/formats/torch/globals.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/words.hpp"
#include "runtime/formats/torch/harmful_names.hpp"
#include "runtime/formats/torch/names.hpp"

namespace weightmap::torch {
namespace {

// The content of torch's _get_allowed_globals(). A test compares the two.
constexpr auto safe_globals = std::to_array<std::string_view>({
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.set",
    "collections.Counter",
    "collections.OrderedDict",
    "torch.BFloat16Storage",
    "torch.BFloat16Tensor",
    "torch.BoolStorage",
    "torch.BoolTensor",
    "torch.ByteStorage",
    "torch.ByteTensor",
    "torch.CharStorage",
    "torch.CharTensor",
    "torch.ComplexDoubleStorage",
    "torch.ComplexFloatStorage",
    "torch.DoubleStorage",
    "torch.DoubleTensor",
    "torch.FloatStorage",
    "torch.FloatTensor",
    "torch.HalfStorage",
    "torch.HalfTensor",
    "torch.IntStorage",
    "torch.IntTensor",
    "torch.LongStorage",
    "torch.LongTensor",
    "torch.QInt32Storage",
    "torch.QInt8Storage",
    "torch.QUInt2x4Storage",
    "torch.QUInt4x2Storage",
    "torch.QUInt8Storage",
    "torch.ShortStorage",
    "torch.ShortTensor",
    "torch.Size",
    "torch.Tensor",
    "torch._tensor._rebuild_from_type_v2",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_wrapper_subclass",
    "torch.bfloat16",
    "torch.bits16",
    "torch.bits1x8",
    "torch.bits2x4",
    "torch.bits4x2",
    "torch.bits8",
    "torch.bool",
    "torch.complex128",
    "torch.complex32",
    "torch.complex64",
    "torch.cuda.BFloat16Storage",
    "torch.cuda.BFloat16Tensor",
    "torch.cuda.BoolStorage",
    "torch.cuda.BoolTensor",
    "torch.cuda.ByteStorage",
    "torch.cuda.ByteTensor",
    "torch.cuda.CharStorage",
    "torch.cuda.CharTensor",
    "torch.cuda.ComplexDoubleStorage",
    "torch.cuda.ComplexFloatStorage",
    "torch.cuda.DoubleStorage",
    "torch.cuda.DoubleTensor",
    "torch.cuda.FloatStorage",
    "torch.cuda.FloatTensor",
    "torch.cuda.HalfStorage",
    "torch.cuda.HalfTensor",
    "torch.cuda.IntStorage",
    "torch.cuda.IntTensor",
    "torch.cuda.LongStorage",
    "torch.cuda.LongTensor",
    "torch.cuda.ShortStorage",
    "torch.cuda.ShortTensor",
    "torch.cuda.sparse.BFloat16Tensor",
    "torch.cuda.sparse.ByteTensor",
    "torch.cuda.sparse.CharTensor",
    "torch.cuda.sparse.DoubleTensor",
    "torch.cuda.sparse.FloatTensor",
    "torch.cuda.sparse.HalfTensor",
    "torch.cuda.sparse.IntTensor",
    "torch.cuda.sparse.LongTensor",
    "torch.cuda.sparse.ShortTensor",
    "torch.device",
    "torch.float16",
    "torch.float32",
    "torch.float4_e2m1fn_x2",
    "torch.float64",
    "torch.float8_e4m3fn",
    "torch.float8_e4m3fnuz",
    "torch.float8_e5m2",
    "torch.float8_e5m2fnuz",
    "torch.float8_e8m0fnu",
    "torch.int1",
    "torch.int16",
    "torch.int2",
    "torch.int3",
    "torch.int32",
    "torch.int4",
    "torch.int5",
    "torch.int6",
    "torch.int64",
    "torch.int7",
    "torch.int8",
    "torch.nn.parameter.Parameter",
    "torch.per_channel_affine",
    "torch.per_channel_affine_float_qparams",
    "torch.per_channel_symmetric",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.qint32",
    "torch.qint8",
    "torch.quint2x4",
    "torch.quint4x2",
    "torch.quint8",
    "torch.serialization._get_layout",
    "torch.sparse.BFloat16Tensor",
    "torch.sparse.ByteTensor",
    "torch.sparse.CharTensor",
    "torch.sparse.DoubleTensor",
    "torch.sparse.FloatTensor",
    "torch.sparse.HalfTensor",
    "torch.sparse.IntTensor",
    "torch.sparse.LongTensor",
    "torch.sparse.ShortTensor",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.uint1",
    "torch.uint16",
    "torch.uint2",
    "torch.uint3",
    "torch.uint32",
    "torch.uint4",
    "torch.uint5",
    "torch.uint6",
    "torch.uint64",
    "torch.uint7",
    "torch.uint8",
});
static_assert(std::is_sorted(safe_globals.begin(), safe_globals.end()));

// What weightmap.torch.load() reads as plain data (python/weightmap/_torch/plain_calls.py).
constexpr auto plain_data = std::to_array<std::string_view>({
    "builtins.bool",
    "builtins.bytes",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.str",
    "builtins.tuple",
    "collections.defaultdict",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.numeric._frombuffer",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.core.numeric._frombuffer",
    "numpy.dtype",
    "numpy.ndarray",
});

// True for a type of the archive's own code, a function by which torch.jit.load() makes lists and
// tensors, or a storage class that only TorchScript has.
bool is_script_name(std::string_view module, std::string_view name) noexcept {
  return module == "__torch__" || module.starts_with("__torch__.") ||
         module == "torch.jit._pickle" || storage_type(module, name).has_value();
}

Error harmful(const value::Global& global, std::uint64_t file_offset) {
  const bool is_dumped = global.module == "torch.storage" && global.name == "_load_from_bytes";
  return {
      ErrorCode::unsafe_pickle,
      "the pickle names " + qualified_name(global.module, global.name) +
          (is_dumped ? ", as pickle.dump writes tensors of torch; nothing was run, load it where "
                       "you trust it and save it with torch.save"
                     : ", which no checkpoint needs; nothing was run"),
      file_offset + global.position,
      {}};
}

Error not_allowed(const value::Global& global, std::uint64_t file_offset) {
  const GlobalName current = in_python_3(global.module, global.name);
  const std::string name = qualified_name(current.module, current.name);
  return {ErrorCode::unsafe_pickle,
          "the pickle names " + name +
              ", which torch does not allow by default; if you trust it, allow it by adding \"" +
              name + "\" to safe_globals (--allow-global)",
          file_offset + global.position,
          {}};
}

}  // namespace

GlobalVerdict judge(std::string_view module, std::string_view name,
                    const std::set<std::string, std::less<>>& allowed, bool is_script) {
  if (is_harmful(module, name)) return GlobalVerdict::harmful;
  const GlobalName current = in_python_3(module, name);
  const std::string full = full_name(current.module, current.name);
  if (std::binary_search(safe_globals.begin(), safe_globals.end(), std::string_view(full)))
    return GlobalVerdict::torch_safe;
  if (is_script && is_script_name(module, name)) return GlobalVerdict::torchscript;
  if (allowed.contains(full)) return GlobalVerdict::allowed;
  // joblib's class of arrays is none of them: what its load() reads behind one, as elements or as
  // opcodes, is up to dtypes and lengths that another version may read otherwise.
  const bool is_plain = std::ranges::find(plain_data, full) != plain_data.end();
  return is_plain ? GlobalVerdict::plain_data : GlobalVerdict::unknown;
}

Result<bool> check_globals(const value::Tree& tree, std::uint64_t file_offset,
                           const OpenOptions& options, bool is_script) {
  const bool refuses_unknown = options.globals == Globals::torch_safe;
  const value::Global* unknown = nullptr;
  bool all_safe = true;
  for (const value::Global* global : tree.globals()) {
    const GlobalVerdict verdict =
        judge(global->module, global->name, options.safe_globals, is_script);
    if (verdict == GlobalVerdict::harmful)
      return tl::unexpected<Error>(harmful(*global, file_offset));
    all_safe &= verdict == GlobalVerdict::torch_safe || verdict == GlobalVerdict::torchscript;
    if (is_unsafe(verdict) && unknown == nullptr) unknown = global;
  }
  if (refuses_unknown && unknown != nullptr)
    return tl::unexpected<Error>(not_allowed(*unknown, file_offset));
  return all_safe;
}

}  // namespace weightmap::torch

namespace weightmap {

std::string_view to_string(GlobalVerdict verdict) noexcept {
  constexpr std::string_view words[] = {"torch_safe", "allowed", "torchscript",
                                        "plain_data", "unknown", "harmful"};
  return word_of(verdict, words);
}

std::span<const std::string_view> torch_safe_globals() noexcept { return torch::safe_globals; }

}  // namespace weightmap
