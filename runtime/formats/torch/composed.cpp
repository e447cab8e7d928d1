#include "runtime/formats/torch/composed.hpp"

#include <string>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::torch {
namespace {

using Form = ComposedTensor::Form;

// Only a call can be a tensor; the call's own decoding checks its result.
bool may_be_tensor(const Value& value) noexcept { return value.kind() == Value::Kind::object; }

std::optional<DType> dtype_of(const Value& value) noexcept {
  return value.kind() == Value::Kind::global ? dtype_global(value.module(), value.name())
                                             : std::nullopt;
}

// Returns "cpu" for the text itself and for torch.device("cpu"[, index]).
std::string device_of(const Value& value) {
  const Value text = is_named(value.callable(), "torch", "device") && value.arguments().size() > 0
                         ? value.arguments()[0]
                         : value;
  return bytes::escape(text.string().value_or(std::string_view{}));
}

struct Layout {
  std::string_view name;  // torch.serialization._get_layout("torch.sparse_csr")
  std::int64_t number;    // in TorchScript (c10/core/Layout.h)
  Form form;
};
constexpr Layout layouts[] = {{"torch.sparse_coo", 1, Form::sparse_coo},
                              {"torch.sparse_csr", 2, Form::sparse_csr},
                              {"torch.sparse_csc", 4, Form::sparse_csc},
                              {"torch.sparse_bsr", 5, Form::sparse_bsr},
                              {"torch.sparse_bsc", 6, Form::sparse_bsc}};

std::optional<Form> layout_of(const Value& value) noexcept {
  if (!is_named(value.callable(), "torch.serialization", "_get_layout") ||
      value.arguments().size() != 1)
    return std::nullopt;
  for (const Layout& known : layouts)
    if (value.arguments()[0].string() == known.name) return known.form;
  return std::nullopt;
}

std::optional<Form> script_layout(std::optional<std::int64_t> number) noexcept {
  for (const Layout& known : layouts)
    if (number == known.number) return known.form;
  return std::nullopt;
}

bool has_tensors(const Value& tuple, std::size_t first, std::size_t count) noexcept {
  for (std::size_t i = first; i < first + count; ++i)
    if (!may_be_tensor(tuple[i])) return false;
  return true;
}

std::string arguments_text(const Value& arguments) {
  return bytes::counted(arguments.size(), "argument");
}

}  // namespace

Result<std::vector<std::int64_t>> ComposedDecoder::dims(const Value& given,
                                                        std::uint32_t position) const {
  const bool is_call = is_size(given.callable()) && given.arguments().size() == 1;
  const Value tuple = is_call ? given.arguments()[0] : given;
  if (tuple.kind() != Value::Kind::tuple && tuple.kind() != Value::Kind::list)
    return corrupt(position, "a tensor's sizes or strides are no tuple");
  if (tuple.size() > rank_limit_)
    return failure(ErrorCode::limit_exceeded,
                   "a tensor has " + std::to_string(tuple.size()) + " dimensions, the limit is " +
                       std::to_string(rank_limit_),
                   pickle_offset_ + position);
  std::vector<std::int64_t> dims;
  for (const Value& dim : tuple.elements()) {
    const std::optional<std::int64_t> number = dim.integer();
    if (!number || *number < 0)
      return corrupt(position,
                     "a tensor's size or stride is " +
                         (number ? std::to_string(*number) : std::string(to_string(dim.kind()))) +
                         ", expected a number from 0 on");
    dims.push_back(*number);
  }
  return dims;
}

ComposedDecoder::Decoded ComposedDecoder::decode(const TensorCall& call) const {
  const auto decoded = [&]() -> Decoded {
    switch (call.function) {
      case Rebuild::sparse:
        return call.arguments.size() > 2 ? decode_script_sparse(call.arguments, call.position)
                                         : decode_sparse(call.arguments, call.position);
      case Rebuild::nested:
        return decode_nested(call.arguments, call.position);
      case Rebuild::jagged:
        return decode_jagged(call.arguments);
      case Rebuild::meta:
        return decode_meta(call.arguments, call.position);
      case Rebuild::wrapper_subclass:
        return decode_subclass(call.arguments, call.position);
      case Rebuild::device_tensor_from_array:
        return decode_from_array(call.arguments, call.position);
      default:
        return std::nullopt;
    }
  }();
  if (!decoded || !*decoded) return decoded;
  ComposedTensor composed = **decoded;
  composed.is_parameter = call.is_parameter;
  if (call.requires_grad) composed.requires_grad = *call.requires_grad;
  return composed;
}

// (layout, (indices, values, size[, is_coalesced])), or, compressed, (layout, (compressed, plain,
// values, size)): torch/_utils.py, _rebuild_sparse_tensor
ComposedDecoder::Decoded ComposedDecoder::decode_sparse(const Value& arguments,
                                                        std::uint32_t position) const {
  if (arguments.size() != 2 || arguments[1].kind() != Value::Kind::tuple)
    return corrupt(position, "_rebuild_sparse_tensor has " + arguments_text(arguments) +
                                 ", expected a layout and a tuple of its parts");
  const std::optional<Form> layout = layout_of(arguments[0]);
  if (!layout) return std::nullopt;
  const Value parts = arguments[1];
  ComposedTensor composed;
  composed.form = *layout;
  const bool is_coo = *layout == Form::sparse_coo;
  const std::size_t tensors = is_coo ? 2 : 3;
  const std::size_t most = 4;
  if (parts.size() <= tensors || parts.size() > most || !has_tensors(parts, 0, tensors))
    return corrupt(position, "_rebuild_sparse_tensor has no indices, values and size for " +
                                 std::string(to_string(*layout)));
  TRY_ASSIGN(composed.sizes, dims(parts[tensors], position));
  if (is_coo && parts.size() == most) composed.is_coalesced = parts[3].boolean();
  return composed;
}

// (layout number, size, requires_grad, indices ..., values, hooks): torch, csrc/jit, pickler.cpp.
ComposedDecoder::Decoded ComposedDecoder::decode_script_sparse(const Value& arguments,
                                                               std::uint32_t position) const {
  const std::optional<Form> layout = script_layout(arguments[0].integer());
  if (!layout) return std::nullopt;
  const std::size_t tensors = *layout == Form::sparse_coo ? 2 : 3;
  if (arguments.size() != tensors + 4 || !arguments[2].boolean() ||
      !has_tensors(arguments, 3, tensors))
    return corrupt(position, "_rebuild_sparse_tensor has no indices and values for " +
                                 std::string(to_string(*layout)));
  ComposedTensor composed;
  composed.form = *layout;
  composed.requires_grad = *arguments[2].boolean();
  TRY_ASSIGN(composed.sizes, dims(arguments[1], position));
  return composed;
}

// (buffer, sizes, strides, storage offsets)
ComposedDecoder::Decoded ComposedDecoder::decode_nested(const Value& arguments,
                                                        std::uint32_t position) const {
  if (arguments.size() != 4 || !has_tensors(arguments, 0, 4))
    return corrupt(position, "_rebuild_nested_tensor has " + arguments_text(arguments) +
                                 ", expected four tensors");
  ComposedTensor composed;
  composed.form = Form::nested;
  return composed;
}

// ({"values": tensor, "offsets": tensor, "requires_grad": bool, ...}); torch's own code may change
// it freely, so other arguments are not described.
ComposedDecoder::Decoded ComposedDecoder::decode_jagged(const Value& arguments) {
  const std::optional<Value> values =
      arguments.size() == 1 ? arguments[0].find("values") : std::nullopt;
  if (!values || !may_be_tensor(*values)) return std::nullopt;
  ComposedTensor composed;
  composed.form = Form::nested;
  if (const std::optional<Value> flag = arguments[0].find("requires_grad"))
    composed.requires_grad = flag->boolean().value_or(false);
  return composed;
}

// (dtype, size, stride, requires_grad)
ComposedDecoder::Decoded ComposedDecoder::decode_meta(const Value& arguments,
                                                      std::uint32_t position) const {
  const bool is_complete = arguments.size() == 4 && arguments[3].boolean();
  ComposedTensor composed;
  composed.form = Form::meta;
  if (is_complete) composed.dtype = dtype_of(arguments[0]);
  if (!composed.dtype)
    return corrupt(position, "_rebuild_meta_tensor_no_storage has " + arguments_text(arguments) +
                                 ", expected a dtype, sizes, strides and requires_grad");
  composed.requires_grad = *arguments[3].boolean();
  TRY_ASSIGN(composed.sizes, dims(arguments[1], position));
  TRY_ASSIGN(composed.strides, dims(arguments[2], position));
  if (composed.sizes.size() == composed.strides.size()) return composed;
  return corrupt(position, "a meta tensor has " + bytes::counted(composed.sizes.size(), "size") +
                               " and " + bytes::counted(composed.strides.size(), "stride"));
}

// (class, dtype, size, stride, storage_offset, layout, device, requires_grad)
ComposedDecoder::Decoded ComposedDecoder::decode_subclass(const Value& arguments,
                                                          std::uint32_t position) const {
  const bool is_complete =
      arguments.size() == 8 && arguments[0].kind() == Value::Kind::global && arguments[7].boolean();
  ComposedTensor composed;
  composed.form = Form::subclass;
  if (is_complete) composed.dtype = dtype_of(arguments[1]);
  if (!composed.dtype)
    return corrupt(position, "_rebuild_wrapper_subclass has " + arguments_text(arguments) +
                                 ", expected a class, a dtype and six more");
  composed.type = qualified_name(arguments[0]);
  composed.device = device_of(arguments[6]);
  composed.requires_grad = *arguments[7].boolean();
  TRY_ASSIGN(composed.sizes, dims(arguments[2], position));
  TRY_ASSIGN(composed.strides, dims(arguments[3], position));
  return composed;
}

// (array, dtype, device, requires_grad)
ComposedDecoder::Decoded ComposedDecoder::decode_from_array(const Value& arguments,
                                                            std::uint32_t position) const {
  const bool is_complete = arguments.size() == 4 && arguments[3].boolean();
  ComposedTensor composed;
  composed.form = Form::from_array;
  if (is_complete) composed.dtype = dtype_of(arguments[1]);
  if (!composed.dtype)
    return corrupt(position, "_rebuild_device_tensor_from_numpy has " + arguments_text(arguments) +
                                 ", expected an array, a dtype, a device and requires_grad");
  composed.device = device_of(arguments[2]);
  composed.requires_grad = *arguments[3].boolean();
  return composed;
}

// Decodes the parameters of a quantized tensor: (per_tensor_affine, scale, zero_point), or
// (per_channel_affine, scales, zero_points, axis).
Result<ComposedTensor> ComposedDecoder::decode_quantized(const TensorCall& call,
                                                         const TensorSpec& spec) const {
  ComposedTensor composed;
  composed.dtype = spec.dtype;
  composed.sizes.assign(spec.dims, spec.dims + spec.rank);
  composed.strides.assign(spec.dims + spec.rank, spec.dims + 2 * std::size_t{spec.rank});
  composed.requires_grad = (spec.flags & TensorSpec::requires_grad) != 0;
  composed.is_parameter = (spec.flags & TensorSpec::parameter) != 0;
  const Value parameters = call.arguments[4];
  const bool is_tuple = parameters.kind() == Value::Kind::tuple && parameters.size() >= 3;
  const QuantizationScheme scheme =
      is_tuple ? quantization_scheme(parameters[0]) : QuantizationScheme::none;
  if (scheme == QuantizationScheme::per_tensor && parameters.size() == 3) {
    const std::optional<double> scale = parameters[1].real();
    const std::optional<std::int64_t> zero_point = parameters[2].integer();
    if (scale && zero_point) {
      composed.form = Form::quantized;
      composed.scale = *scale;
      composed.zero_point = *zero_point;
      return composed;
    }
  }
  if (scheme == QuantizationScheme::per_channel && parameters.size() == 4 &&
      parameters[3].integer()) {
    composed.form = Form::per_channel;
    composed.axis = *parameters[3].integer();
    const bool is_dimension = composed.axis >= 0 && composed.axis < spec.rank;
    if (is_dimension) return composed;
    return corrupt(call.position, "a tensor is quantized along axis " +
                                      std::to_string(composed.axis) + " of " +
                                      std::to_string(spec.rank));
  }
  return corrupt(call.position, "_rebuild_qtensor has no scheme with scale and zero point");
}

}  // namespace weightmap::torch
