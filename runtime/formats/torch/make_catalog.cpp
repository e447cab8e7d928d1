#include "runtime/formats/torch/make_catalog.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/torch/entry_maker.hpp"
#include "runtime/formats/torch/equal_key.hpp"

namespace weightmap::torch {
namespace {

class CatalogMaker {
 public:
  CatalogMaker(const CatalogInput& input, std::pmr::memory_resource& memory)
      : input_(input),
        table_(input.table),
        builder_(count(input), memory),
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
  static catalog::Counts count(const CatalogInput& input) {
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
  // The block's offsets have 32 bits.
  constexpr std::uint64_t max = std::numeric_limits<std::uint32_t>::max();
  if (input.table.dim_count > max || input.table.path_parts > max ||
      input.table.name_bytes + input.table.storages.key_bytes() > max / 2)
    return failure(ErrorCode::limit_exceeded,
                   "the names and shapes of the tensors need more than "
                   "the 4 GiB that a catalog can address");
  return CatalogMaker(input, memory).make();
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
