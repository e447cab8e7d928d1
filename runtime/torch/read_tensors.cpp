#include "runtime/torch/read_tensors.hpp"

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/torch/composed.hpp"
#include "runtime/torch/joined_name.hpp"

namespace weightmap::torch {
namespace {

using value::PackedCall;
using value::Tree;

// The first tensors of a pickle and those in its last kilobyte are never packed.
std::size_t expected_tensors(const Tree& tree) noexcept {
  return tree.packed_count() + tree.packed_count() / 64 + 16;
}

class Reader final : public TreeWalk {
 public:
  Reader(const Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory,
         std::uint32_t first_mark)
      : TreeWalk(tree, limits, TensorTable(memory, expected_tensors(tree), expected_tensors(tree)),
                 first_mark),
        composed_(limits.file_offset, limits.limits.rank) {}

  Result<TensorTable> run() {
    if (!walk()) return tl::unexpected<Error>(std::move(error_));
    return std::move(table_);
  }

 private:
  bool found_packed(const PackedCall& call, const Child& child, std::uint32_t path) override;
  bool found_call(TensorCall& call, const value::Cell& object) override;
  bool found_object(std::uint32_t number, const Child& child, std::uint32_t path) override;
  bool found_composed(const TensorCall& call, const Child& child, std::uint32_t path) override;
  bool found_array(const NumpyArray& array, const Child& child, std::uint32_t path) override;
  bool found_storage(std::string_view key, std::int64_t numel, DType dtype) override {
    const Result<std::uint32_t> number = decoder_.intern(key, numel, dtype, 0);
    return number || fail(number.error());
  }
  bool is_tensor(const PackedCall& call) override {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    return meaning && (*meaning)->is_tensor;
  }
  // Of a call whose meaning is last_meaning_. False as in TensorDecoder.
  bool place(const PackedCall& call, std::uint32_t& storage);
  bool add(TensorSpec spec, const Child& child, std::uint32_t path);
  // Its parts begin with tensor `first_part`.
  bool add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
                    std::uint32_t path, std::uint32_t position);

  std::vector<TensorSpec> decoded_;  // of objects, each once, however often it is mentioned
  std::unordered_map<std::uint32_t, ComposedTensor> quantized_;  // by the number of such an object
  ComposedDecoder composed_;
  const HeaderMeaning* last_meaning_ = nullptr;
};

bool Reader::found_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.shape->header) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    if (!meaning) return fail(meaning.error()) || fail_in(child, path);
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) {  // nothing inside such a call can be a tensor
    note_other_item();
    return true;
  }
  TensorSpec spec;
  if (!decoder_.describe_packed(call, *last_meaning_, spec) || !place(call, spec.storage))
    return fail(decoder_.error()) || fail_in(child, path);
  return add(spec, child, path);
}

bool Reader::place(const PackedCall& call, std::uint32_t& storage) {
  if (call.key_position >= bytes::most_digits && !in_constants()) {
    const auto next = table_.storages.intern_next(tree_.text(call.key_position, call.key_length),
                                                  call.shape->numel, last_meaning_->storage_dtype,
                                                  last_meaning_->storage_element_size);
    if (next) {
      storage = *next;
      return true;
    }
  }
  return decoder_.intern_packed(call, *last_meaning_, storage);
}

bool Reader::found_call(TensorCall& call, const value::Cell& object) {
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

bool Reader::found_object(std::uint32_t number, const Child& child, std::uint32_t path) {
  if (!add(decoded_[number], child, path)) return false;
  const auto quantized = quantized_.find(number);
  return quantized == quantized_.end() || add_composed(quantized->second, table_.tensor_count - 1,
                                                       child, path, decoded_[number].position);
}

bool Reader::found_composed(const TensorCall& call, const Child& child, std::uint32_t path) {
  Result<std::optional<ComposedTensor>> composed = composed_.decode(call);
  if (!composed) return fail(std::move(composed.error()));
  return !*composed ||
         add_composed(std::move(**composed), table_.tensor_count, child, path, call.position);
}

bool Reader::found_array(const NumpyArray& array, const Child& child, std::uint32_t path) {
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
  if (!is_known) table_.arrays.push_back({array.position, array.nbytes});
  spec.storage = TensorSpec::in_pickle | static_cast<std::uint32_t>(table_.arrays.size() - 1);
  Result<std::uint16_t> location = decoder_.location_number("cpu");
  if (!location) return fail(std::move(location.error()));
  spec.location = *location;
  return add(spec, child, path);
}

bool Reader::add_composed(ComposedTensor composed, std::uint64_t first_part, const Child& child,
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
  return true;
}

bool Reader::add(TensorSpec spec, const Child& child, std::uint32_t path) {
  if (!count(child, path, spec.position)) return false;
  spec.path = path;
  spec.key = key_of(child);
  spec.flags |= role_of(child);
  table_.count_dims(spec.dims, spec.rank);
  if (!check_memory(0, spec.position)) return false;
  table_.tensors.push_back(spec);
  return true;
}

}  // namespace

Result<TensorTable> read_tensors(const Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark) {
  return Reader(tree, limits, memory, first_mark).run();
}

}  // namespace weightmap::torch
