#include "runtime/formats/torch/make_catalog.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/torch/repeated_keys.hpp"
#include "runtime/formats/torch/tensor_name.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::torch {
namespace {

using catalog::Path;

// Turns a tensor as the pickle describes it into a catalog entry with its name and path.
class EntryMaker {
 public:
  // All references must outlive this object.
  EntryMaker(const value::Tree& tree, const TensorTable& table, bool foreign_byte_order,
             catalog::CatalogBuilder& builder)
      : tree_(tree), table_(table), foreign_byte_order_(foreign_byte_order), builder_(builder) {}

  struct Name {
    catalog::Text text;
    Path path;
  };
  // Adds the name of the value under this key in the container `path`.
  Name add_name(std::uint32_t path, const value::Cell& key) {
    if (path == 0 && value::kind_of(key) == Value::Kind::string)  // nearly always
      return {builder_.add_text(tree_.text(key.payload, key.count)), {Path::is_name, 1}};
    return path == TensorSpec::is_root ? Name{{}, {0, 0}} : add_joined_name(path, key);
  }
  // Returns the builder's input for a tensor, after adding the text of its name.
  catalog::TensorInput input_of(const TensorSpec& spec) {
    const Name name = add_name(spec.path, spec.key);
    return {name.text,     name.path,  spec.dims, spec.storage_offset, spec.storage,
            spec.location, spec.dtype, spec.rank, flags_of(spec)};
  }
  // Returns the tensor's name for messages.
  std::string name_of(const TensorSpec& spec) const {
    return joined_name(tree_, table_.paths, spec.path, spec.key);
  }

 private:
  std::uint8_t flags_of(const TensorSpec& spec) const noexcept {
    unsigned flags = 0;
    if (foreign_byte_order_ && swap_unit(spec.dtype) > 1) flags |= TensorView::foreign_order;
    if (spec.flags & TensorSpec::conjugate) flags |= TensorView::conjugate;
    if (spec.flags & TensorSpec::negative) flags |= TensorView::negative;
    if (spec.flags & TensorSpec::requires_grad) flags |= catalog::Entry::requires_grad;
    if (spec.flags & TensorSpec::parameter) flags |= catalog::Entry::parameter;
    if (spec.flags & TensorSpec::buffer) flags |= catalog::Entry::buffer;
    return static_cast<std::uint8_t>(flags);
  }
  Name add_joined_name(std::uint32_t path, const value::Cell& key);
  void enter(std::uint32_t path);

  const value::Tree& tree_;
  const TensorTable& table_;
  bool foreign_byte_order_;
  catalog::CatalogBuilder& builder_;
  std::uint32_t prefix_path_ = 0;
  std::string prefix_;
  std::vector<std::uint32_t> prefix_parts_;  // in the format of Path
  std::vector<std::uint32_t> chain_;
};

EntryMaker::Name EntryMaker::add_joined_name(std::uint32_t path, const value::Cell& cell) {
  if (path != prefix_path_) enter(path);
  const KeyText key(tree_, cell);
  const std::string_view text = key.text();
  char* to;
  const catalog::Text name =
      builder_.add_text(static_cast<std::uint32_t>(prefix_.size() + text.size()), to);
  to = std::copy(prefix_.begin(), prefix_.end(), to);
  std::copy(text.begin(), text.end(), to);
  const PathNode& parent = table_.paths[path];
  if (parent.depth == 0 && !key.is_integer()) return {name, {Path::is_name, 1}};
  const Path parts{builder_.path_position(), std::uint32_t{parent.depth} + 1};
  for (std::uint32_t part : prefix_parts_) builder_.add_path_part(part >> 1, (part & 1) != 0);
  builder_.add_path_part(static_cast<std::uint32_t>(text.size()), key.is_integer());
  return {name, parts};
}

// Sets prefix_ to the container's joined name with a dot behind it. Neighbouring tensors share the
// prefix, so it is kept.
void EntryMaker::enter(std::uint32_t path) {
  prefix_path_ = path;
  prefix_.clear();
  prefix_parts_.clear();
  chain_.clear();
  for (std::uint32_t node = path; table_.paths[node].depth != 0; node = table_.paths[node].parent)
    chain_.push_back(node);
  std::for_each(chain_.rbegin(), chain_.rend(), [this](std::uint32_t node) {
    const KeyText key(tree_, table_.paths[node].key);
    prefix_.append(key.text()).push_back('.');
    prefix_parts_.push_back(static_cast<std::uint32_t>(key.text().size() << 1) |
                            (key.is_integer() ? 1u : 0u));
  });
}

catalog::Counts count(const CatalogInput& input) {
  const TensorTable& table = input.table;
  std::uint64_t locations = 0;
  for (std::string_view location : table.locations) locations += location.size();
  constexpr std::uint64_t digits = 20;
  return {table.tensors.size(),
          input.extents.size() + table.arrays.size(),
          table.dim_count,
          table.path_parts,
          table.locations.size(),
          table.name_bytes + table.storages.key_bytes() + locations +
              table.arrays.size() * (array_folder.size() + digits)};
}

class CatalogMaker {
 public:
  CatalogMaker(const CatalogInput& input, const catalog::Counts& counts,
               std::pmr::memory_resource& memory)
      : input_(input),
        table_(input.table),
        builder_(counts, memory),
        entries_(input.tree, input.table, input.foreign_byte_order, builder_) {}

  Result<catalog::Catalog> make() && {
    add_storages();
    for (std::string_view location : table_.locations) builder_.add_location(location);
    const std::size_t listed = table_.tensors.size() - table_.unlisted;
    for (const TensorSpec& spec : table_.tensors) {
      if (table_.unlisted != 0 && &spec == table_.tensors.data() + listed) builder_.end_listed();
      catalog::TensorInput tensor = entries_.input_of(spec);
      if ((spec.storage & TensorSpec::in_pickle) != 0) place_in_pickle(spec, tensor);
      if (!builder_.add_tensor(tensor)) return refuse(spec, tensor);
    }
    if (builder_.has_ambiguous_names()) TRY(check_keys());
    return std::move(builder_).finish();
  }

 private:
  // Arrays are in this machine's byte order; see numpy_array.hpp.
  void place_in_pickle(const TensorSpec& spec, catalog::TensorInput& tensor) const {
    tensor.storage =
        static_cast<std::uint32_t>(input_.extents.size()) + (spec.storage & ~TensorSpec::in_pickle);
    tensor.flags = static_cast<std::uint8_t>(tensor.flags & ~TensorView::foreign_order);
  }
  void add_storages() {
    for (std::size_t i = 0; i < input_.extents.size(); ++i) {
      const zip::StorageExtent& extent = input_.extents[i];
      const std::uint32_t source = extent.payload_offset >= input_.copies_base ? 1 : 0;
      builder_.add_storage(table_.storages.storages()[i].key, extent.payload_offset, extent.nbytes,
                           extent.crc32, source);
    }
    for (const ArrayExtent& array : table_.arrays)
      builder_.add_storage(
          std::string(array_folder) + std::to_string(array.copied ? array.object : array.position),
          array.copied.value_or(input_.pickle_offset + array.position), array.nbytes, 0,
          array.copied ? 1 : 0);
  }

  [[gnu::cold]] tl::unexpected<Error> refuse(const TensorSpec& spec,
                                             const catalog::TensorInput& tensor) {
    return failure(
        ErrorCode::corrupt,
        "tensor " + bytes::quote(entries_.name_of(spec)) + " " + builder_.explain(tensor),
        input_.pickle_offset + spec.position);
  }

  // Two tensors of one name come from two spellings of it, unless they have one key in one dict.
  [[gnu::cold]] Result<void> check_keys() const {
    struct Place {
      std::uint32_t path;
      EqualKey key;
      auto operator<=>(const Place&) const = default;
    };
    std::vector<Place> places;
    for (const TensorSpec& spec : table_.tensors)
      if (spec.path != TensorSpec::is_root && table_.paths[spec.path].keys_are_unique)
        if (const EqualKey key(input_.tree, spec.key); key.is_comparable())
          places.push_back({spec.path, key});
    std::sort(places.begin(), places.end());
    const auto repeated = std::adjacent_find(places.begin(), places.end());
    if (repeated == places.end()) return {};
    return tl::unexpected<Error>(
        key_twice(input_.tree, repeated->key.cell(), input_.pickle_offset));
  }

  const CatalogInput& input_;
  const TensorTable& table_;
  catalog::CatalogBuilder builder_;
  EntryMaker entries_;
};

}  // namespace

Result<catalog::Catalog> make_catalog(const CatalogInput& input,
                                      std::pmr::memory_resource& memory) {
  const catalog::Counts counts = count(input);
  TRY(catalog::check_counts(counts));
  return CatalogMaker(input, counts, memory).make();
}

void keep_nodes(const TensorTable& table, format::TensorNodes& nodes) {
  nodes.reserve(table.tensors.size());
  std::uint32_t number = 0;
  for (const TensorSpec& spec : table.tensors) {
    // An array remains an array in the value tree.
    if ((spec.storage & TensorSpec::in_pickle) == 0) nodes.add({spec.position, number});
    ++number;
  }
  nodes.sort();
}

}  // namespace weightmap::torch
