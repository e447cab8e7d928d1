#include "runtime/formats/torch/read_tensors.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "runtime/formats/torch/joined_name.hpp"

namespace weightmap::torch {

bool TreeWalk::decode(const TensorCall& call, const value::Cell& object) {
  Result<TensorSpec> spec = decoder_.decode(call);
  if (!spec) return fail(std::move(spec.error()));
  spec->position = *value::position_of(object);  // the outermost wrapper is the tensor
  if (call.function == Rebuild::qtensor) {
    Result<ComposedTensor> quantized = composed_.decode_quantized(call, *spec);
    if (!quantized) return fail(std::move(quantized.error()));
    quantized_.emplace(static_cast<std::uint32_t>(decoded_.size()), std::move(*quantized));
  }
  decoded_.push_back(*spec);
  table_.decoded_bytes += sizeof(TensorSpec) + sizeof(std::vector<Attachment>);
  return true;
}

bool TreeWalk::add_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  if (!add(decoded_[number], child, path)) return false;
  const auto quantized = quantized_.find(number);
  return quantized == quantized_.end() || add_composed(quantized->second, table_.tensor_count - 1,
                                                       child, path, decoded_[number].position);
}

bool TreeWalk::add_composed(const TensorCall& call, const Child& child, std::uint32_t path) {
  Result<std::optional<ComposedTensor>> composed = composed_.decode(call);
  if (!composed) return fail(std::move(composed.error()));
  return !*composed ||
         add_composed(std::move(**composed), table_.tensor_count, child, path, call.position);
}

bool TreeWalk::add_array(const NumpyArray& array, const Child& child, std::uint32_t path) {
  TensorSpec spec{};
  if (array.shape.size() > limits_.rank)
    return fail(ErrorCode::limit_exceeded, "an array has " + std::to_string(array.shape.size()) +
                                               " dimensions, the limit is " +
                                               std::to_string(limits_.rank));
  std::vector<std::int64_t>& dims = table_.owned_dims.emplace_back(array.shape);
  dims.insert(dims.end(), array.strides.begin(), array.strides.end());
  table_.decoded_bytes += dims.size() * sizeof(std::int64_t) + sizeof(ArrayExtent);
  spec.dims = dims.data();
  spec.rank = static_cast<std::uint8_t>(array.shape.size());
  spec.dtype = array.dtype;
  spec.position = *value::position_of(child.value);
  const bool is_known = !table_.arrays.empty() && table_.arrays.back().position == array.position;
  if (!is_known) table_.arrays.push_back({array.position, array.nbytes, spec.position, {}});
  spec.storage = TensorSpec::in_pickle | static_cast<std::uint32_t>(table_.arrays.size() - 1);
  Result<std::uint16_t> location = decoder_.location_number("cpu");
  if (!location) return fail(std::move(location.error()));
  spec.location = *location;
  return add(spec, child, path);
}

bool TreeWalk::add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
                            std::uint32_t path, std::uint32_t position) {
  composed.name = joined_name(tree_, table_.paths, path, key_of(child));
  const std::uint8_t role = role_of(child);
  composed.is_parameter = composed.is_parameter || (role & TensorSpec::parameter) != 0;
  composed.is_buffer = (role & TensorSpec::buffer) != 0;
  composed.first_part = first_part;
  composed.part_count = table_.tensor_count - first_part;
  table_.decoded_bytes += sizeof(ComposedTensor) + composed.name.size() + composed.type.size() +
                          (composed.sizes.size() + composed.strides.size()) * sizeof(std::int64_t);
  if (!check_memory(0, position)) return false;
  table_.composed.push_back(std::move(composed));
  table_.composed_nodes.push_back({position, child.flags});
  return true;
}

bool TreeWalk::add(TensorSpec spec, const Child& child, std::uint32_t path) {
  if (!count(child, path, spec.position)) return false;
  spec.path = path;
  spec.key = key_of(child);
  spec.flags |= role_of(child);
  table_.count_dims(spec.dims, spec.rank);
  if (!check_memory(0, spec.position)) return false;
  table_.tensors.push_back(spec);
  return true;
}

Result<TensorTable> read_tensors(const value::Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark) {
  return TreeWalk(tree, limits, memory, first_mark).run();
}

}  // namespace weightmap::torch
