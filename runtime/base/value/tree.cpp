#include "runtime/base/value/tree.hpp"

namespace weightmap::value {
namespace {

using enum Value::Kind;

constexpr std::uint32_t id_fields = 5;

std::uint32_t argument_count(const PackedCall& call) noexcept {
  return call.shape->header->ids.extra == PackedHeader::no_id ? 6 : 7;
}

Cell part_cell(Value::Kind kind, const PackedCall& call, Part part,
               std::uint32_t count = 0) noexcept {
  return make_cell(kind, &call, count, part);
}

// An empty tuple is never memoized and has no identity.
Cell sizes_cell(const PackedCall& call) noexcept {
  const std::uint8_t count = call.shape->size_count;
  if (count == 0) return make_cell(tuple, std::uint64_t{0});
  return part_cell(tuple, call, packed_sizes, count);
}
Cell strides_cell(const PackedCall& call) noexcept {
  const std::uint8_t count = call.shape->stride_count;
  if (count == 0) return make_cell(tuple, std::uint64_t{0});
  return part_cell(tuple, call, packed_strides, count);
}

Cell argument(const PackedCall& call, std::size_t index) noexcept {
  switch (index) {
    case 0:
      return part_cell(persistent_id, call, packed_storage);
    case 1:
      return make_integer(call.shape->storage_offset);
    case 2:
      return sizes_cell(call);
    case 3:
      return strides_cell(call);
    case 4:
      return make_cell(boolean, std::uint64_t{call.requires_grad});
    case 5:
      return part_cell(object, call, packed_hooks);
    default:
      return call.shape->header->extra;
  }
}

Cell id_field(const PackedCall& call, std::size_t index) noexcept {
  switch (index) {
    case 0:
      return call.shape->header->tag;
    case 1:
      return call.shape->header->type;
    case 2:
      return packed_key_cell(call);
    case 3:
      return call.shape->header->location;
    default:
      return make_integer(call.shape->numel);
  }
}

}  // namespace

Cell packed_arguments_cell(const PackedCall& call) noexcept {
  return part_cell(tuple, call, packed_arguments, argument_count(call));
}

Cell packed_id_cell(const PackedCall& call) noexcept {
  return part_cell(tuple, call, packed_id, id_fields);
}

Cell packed_element(const Cell& tuple_cell, std::size_t index) noexcept {
  const PackedCall& call = *target_of<const PackedCall>(tuple_cell);
  switch (tuple_cell.part) {
    case packed_arguments:
      return argument(call, index);
    case packed_id:
      return id_field(call, index);
    case packed_sizes:
      return make_integer(call.shape->sizes()[index]);
    default:
      return make_integer(call.shape->strides()[index]);
  }
}

std::uint32_t packed_memo_count(const PackedCall& call) noexcept {
  const PackedShape& shape = *call.shape;
  // Always present: id tuple, hooks, arguments, result.
  return 4u + call.has_name() + call.has_key_put + (shape.size_count > 0) +
         (shape.stride_count > 0);
}

Cell packed_memo(const PackedCall& call, std::uint32_t offset) noexcept {
  // A pickler numbers children before their tuple.
  if (call.has_name() && offset-- == 0)
    return make_cell(string, call.name_position(), call.name_length);
  if (call.has_key_put && offset-- == 0) return packed_key_cell(call);
  if (offset-- == 0) return packed_id_cell(call);
  if (call.shape->size_count > 0 && offset-- == 0) return sizes_cell(call);
  if (call.shape->stride_count > 0 && offset-- == 0) return strides_cell(call);
  if (offset-- == 0) return part_cell(object, call, packed_hooks);
  if (offset-- == 0) return packed_arguments_cell(call);
  return part_cell(object, call, packed_object);
}

}  // namespace weightmap::value
