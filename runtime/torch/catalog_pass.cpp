#include "runtime/torch/catalog_pass.hpp"

#include <limits>
#include <utility>

#include "runtime/bytes/checked.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;
using value::PackedCall;

// Room in the catalog for what is not known before the tensors are decoded. What needs more goes
// the long way.
constexpr std::uint64_t max_locations = 16;
constexpr std::uint64_t max_location_bytes = 512;
constexpr std::uint64_t dims_per_tensor = 8;  // of those that share their dims with no other
constexpr std::uint64_t extra_dims = 112;

// Of "0", "1", ..., as many as `count`, in all.
std::uint64_t digits_below(std::uint64_t count) noexcept {
  std::uint64_t digits = count;
  for (std::uint64_t power = 10; power < count; power *= 10) digits += count - power;
  return digits;
}

}  // namespace

bool CatalogPass::survey() { return walk(); }

bool CatalogPass::found_call(TensorCall& call, const Cell&) {
  if (call.function == Rebuild::qtensor) return false;
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
          storages_.run_count(),
          table_.tensor_count * dims_per_tensor + extra_dims,
          table_.path_parts,
          max_locations,
          table_.name_bytes + digits_below(storages_.run_count()) + max_location_bytes};
}

std::optional<catalog::Catalog> CatalogPass::make(bool foreign_byte_order,
                                                  format::TensorNodes& nodes) {
  const catalog::Counts room = counts();
  constexpr std::uint64_t max = std::numeric_limits<std::uint32_t>::max() / 2;
  if (room.dims > max || room.path_parts > max || room.string_bytes > max) return std::nullopt;
  storages_.reserve();
  builder_.emplace(room, memory_);
  entries_.emplace(tree_, table_, foreign_byte_order, *builder_);
  storages_.enter_into(*builder_);
  for (const Run& run : runs_)
    if (!add_run(run)) return std::nullopt;
  // Two tensors of one name may be an error, and so may be storages that no tensor has.
  if (builder_->has_ambiguous_names() || !storages_.has_all() || !check_memory(0, 0))
    return std::nullopt;
  keep_nodes(nodes);
  return std::move(*builder_).finish();
}

bool CatalogPass::add_run(const Run& run) {
  for (std::size_t at = 0; at < 2 * std::size_t{run.count}; at += 2) {
    const Cell& key = run.items[at];
    const Cell& node = run.items[at + 1];
    const PackedCall* const call = value::packed_call(node);
    if (!(call != nullptr ? add_packed(*call, run.path, key) : add_object(node, run.path, key)))
      return false;
  }
  return true;
}

// The storage of a call. Nearly always it is one that no tensor before has.
inline bool CatalogPass::place(const PackedCall& call, const Alike& alike, std::uint32_t& storage) {
  const std::uint32_t next = storages_.count();
  if (call.key_position >= bytes::most_digits &&
      storages_.add_next(tree_.text(call.key_position, call.key_length), alike.storage_bytes,
                         alike.meaning->storage_dtype, alike.meaning->storage_element_size)) {
    storage = next;
    return true;
  }
  return decoder_.intern_packed(call, *alike.meaning, storage);
}

bool CatalogPass::add_packed(const PackedCall& call, std::uint32_t path, const Cell& key) {
  Alike& alike = alike_[call.shape->slot];
  if (alike.shape != call.shape && !learn(call, alike)) return false;
  std::uint32_t storage;
  if (!place(call, alike, storage)) return false;
  note_tensor(call.position, call.shape->dims, alike.entry.rank);
  const EntryMaker::Name name = entries_->add_name(path, key);
  return builder_->add_tensor_like(alike.entry, name.text, name.path, storage,
                                   call.requires_grad ? catalog::Entry::requires_grad : 0);
}

bool CatalogPass::add_object(const Cell& object, std::uint32_t path, const Cell& key) {
  Deferred& deferred = deferred_[number_of(object)];
  if (!deferred.spec) {
    const Result<TensorSpec> decoded = decoder_.decode(deferred.call);
    if (!decoded) return false;
    deferred.spec = *decoded;
    deferred.spec->position = *value::position_of(object);  // the outermost wrapper is the tensor
  }
  const TensorSpec& spec = *deferred.spec;
  note_tensor(spec.position, spec.dims, spec.rank);
  const std::optional<catalog::Entry> entry = entry_of(spec);
  if (!entry) return false;
  const EntryMaker::Name name = entries_->add_name(path, key);
  return builder_->add_tensor_like(*entry, name.text, name.path, spec.storage);
}

bool CatalogPass::learn(const PackedCall& call, Alike& alike) {
  const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
  TensorSpec spec;
  if (!meaning || !(*meaning)->is_tensor || !decoder_.describe_packed(call, **meaning, spec))
    return false;
  spec.flags = 0;
  const std::optional<catalog::Entry> entry = entry_of(spec);
  const std::int64_t numel = call.shape->numel;
  if (!entry || numel < 0 ||
      !bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(numel),
                                         (*meaning)->storage_element_size, &alike.storage_bytes))
    return false;
  alike.entry = *entry;
  alike.meaning = *meaning;
  alike.shape = call.shape;
  return true;
}

// For the catalog, but for what add_tensor_like() is told.
std::optional<catalog::Entry> CatalogPass::entry_of(const TensorSpec& spec) {
  if (spec.location >= locations_added_ && !add_locations()) return std::nullopt;
  if (builder_->dims_left() < 2 * std::uint64_t{spec.rank}) return std::nullopt;
  return builder_->entry_of(entries_->view_of(spec));
}

bool CatalogPass::add_locations() {
  for (; locations_added_ < table_.locations.size(); ++locations_added_) {
    const std::string_view location = table_.locations[locations_added_];
    location_bytes_ += location.size();
    if (locations_added_ == max_locations || location_bytes_ > max_location_bytes) return false;
    builder_->add_location(location);
  }
  return true;
}

void CatalogPass::note_tensor(std::uint32_t position, const std::int64_t* dims,
                              std::size_t rank) noexcept {
  nodes_ascend_ = nodes_ascend_ && position >= next_position_;
  next_position_ = std::uint64_t{position} + 1;
  table_.count_dims(dims, rank);
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
  nodes.single_items = std::make_unique<decltype(single_items_)>(std::move(single_items_));
}

}  // namespace weightmap::torch
