#include "runtime/torch/catalog_pass.hpp"

#include <limits>
#include <utility>

namespace weightmap::torch {
namespace {

using catalog::CatalogBuilder;
using value::Cell;

// Room in the catalog for what is not known before the tensors are decoded. What needs more goes
// the long way.
constexpr std::uint64_t max_locations = 16;
constexpr std::uint64_t max_location_bytes = 512;
constexpr std::uint64_t dims_per_tensor = 8;  // of those that share their dims with no other

// Of "0", "1", ..., as many as `count`, in all.
std::uint64_t digits_below(std::uint64_t count) noexcept {
  std::uint64_t digits = count;
  for (std::uint64_t power = 10; power < count; power *= 10) digits += count - power;
  return digits;
}

}  // namespace

bool CatalogPass::survey() { return walk(); }

bool CatalogPass::found_call(TensorCall& call, const Cell&) {
  table_.decoded_bytes += sizeof(TensorSpec) + sizeof(std::vector<Attachment>);
  deferred_.push_back({std::move(call), {}});
  return true;
}

bool CatalogPass::add_single(const Child& child, std::uint32_t path) {
  const auto number = static_cast<std::uint32_t>(table_.tensor_count);
  if (!count(child, path, 0)) return false;
  single_items_.push_back({key_of(child), child.value});
  runs_.push_back({single_items_.back().data(), 1, path, number});
  return check_memory(0, 0);
}

bool CatalogPass::found_items(Frame& frame) {
  std::uint64_t key_bytes;
  const std::span<const Cell> items = frame.take_packed_items(key_bytes);
  if (items.empty()) return true;
  const std::size_t count = items.size() / 2;
  const std::uint64_t before = table_.tensor_count;
  if (!spend(count) || count > limits_.tensors - before) return false;
  table_.tensor_count += count;
  table_.count_names(frame.path(), count, key_bytes, false);
  runs_.push_back({items.data(), static_cast<std::uint32_t>(count), frame.path(),
                   static_cast<std::uint32_t>(before)});
  return check_memory(0, 0);
}

catalog::Counts CatalogPass::counts() const {
  return {table_.tensor_count,
          storages_.count(),
          table_.tensor_count * dims_per_tensor,
          table_.path_parts,
          max_locations,
          table_.name_bytes + digits_below(storages_.count()) + max_location_bytes};
}

std::optional<catalog::Catalog> CatalogPass::make(bool foreign_byte_order,
                                                  std::pmr::memory_resource& memory,
                                                  format::TensorNodes& nodes) {
  const catalog::Counts room = counts();
  constexpr std::uint64_t max = std::numeric_limits<std::uint32_t>::max() / 2;
  if (room.dims > max || room.path_parts > max || room.string_bytes > max) return std::nullopt;
  CatalogBuilder builder(room, memory);
  EntryMaker entries(tree_, table_, foreign_byte_order, builder);
  for (const Run& run : runs_)
    if (!add_run(run, entries, builder)) return std::nullopt;
  // Two tensors of one name may be an error, and so may be storages that no tensor has.
  if (builder.has_ambiguous_names() || storages_added_ != storages_.count() || !check_memory(0, 0))
    return std::nullopt;
  keep_nodes(nodes);
  return std::move(builder).finish();
}

bool CatalogPass::add_run(const Run& run, EntryMaker& entries, CatalogBuilder& builder) {
  TensorSpec spec;
  spec.path = run.path;
  for (std::size_t at = 0; at < 2 * std::size_t{run.count}; at += 2) {
    if (!decode(run.items[at + 1], spec)) return false;
    spec.key = run.items[at];
    nodes_ascend_ = nodes_ascend_ && spec.position >= next_position_;
    next_position_ = std::uint64_t{spec.position} + 1;
    table_.count_dims(spec.dims, spec.rank);
    if (spec.storage == storages_added_ && !add_storage(builder)) return false;
    if (spec.location >= locations_added_ && !add_locations(builder)) return false;
    if (builder.dims_left() < 2 * std::uint64_t{spec.rank} ||
        !builder.add_tensor(entries.input_of(spec)))
      return false;
  }
  return true;
}

bool CatalogPass::decode(const Cell& node, TensorSpec& spec) {
  const value::PackedCall* const call = value::packed_call(node);
  if (call == nullptr) return decode_object(node, spec);
  if (meaning_ == nullptr || meaning_->header != call->shape->header) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(*call);
    if (!meaning || !(*meaning)->is_tensor) return false;
    meaning_ = *meaning;
  }
  return decoder_.decode_packed(*call, *meaning_, spec);
}

bool CatalogPass::decode_object(const Cell& node, TensorSpec& spec) {
  Deferred& deferred = deferred_[number_of(node)];
  if (!deferred.spec) {
    const Result<TensorSpec> decoded = decoder_.decode(deferred.call);
    if (!decoded) return false;
    deferred.spec = *decoded;
    deferred.spec->position = *value::position_of(node);  // the outermost wrapper is the tensor
  }
  const std::uint32_t path = spec.path;
  spec = *deferred.spec;
  spec.path = path;
  return true;
}

// The storage that the table got last, which no tensor before has.
bool CatalogPass::add_storage(CatalogBuilder& builder) {
  const zip::StorageRequest& request = table_.storages.storages().back();
  zip::StorageExtent extent;
  if (request.number != storages_added_ || storages_added_ == storages_.count() ||
      !storages_.place(request.number, request.nbytes, request.element_size, extent))
    return false;
  builder.add_storage(request.key, extent.payload_offset, extent.nbytes, extent.crc32);
  ++storages_added_;
  return true;
}

bool CatalogPass::add_locations(CatalogBuilder& builder) {
  for (; locations_added_ < table_.locations.size(); ++locations_added_) {
    const std::string_view location = table_.locations[locations_added_];
    location_bytes_ += location.size();
    if (locations_added_ == max_locations || location_bytes_ > max_location_bytes) return false;
    builder.add_location(location);
  }
  return true;
}

void CatalogPass::keep_nodes(format::TensorNodes& nodes) {
  if (!nodes_ascend_) {
    nodes.nodes.reserve(table_.tensor_count);
    for (const Run& run : runs_)
      for (std::uint32_t i = 0; i < run.count; ++i)
        nodes.nodes.push_back(
            {*value::position_of(run.items[2 * std::size_t{i} + 1]), run.first_tensor + i});
    return nodes.sort();
  }
  nodes.runs = std::move(runs_);
  nodes.single_items = std::move(single_items_);
}

}  // namespace weightmap::torch
