#include "runtime/torch/make_catalog.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/catalog/builder.hpp"
#include "runtime/torch/equal_key.hpp"
#include "runtime/torch/key_text.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::torch {
namespace {

using catalog::Entry;
using catalog::Path;

class CatalogMaker {
 public:
  CatalogMaker(const CatalogInput& input, std::pmr::memory_resource& memory)
      : input_(input), table_(input.table), builder_(count(input), memory) {}

  Result<catalog::Catalog> make() && {
    add_storages();
    for (std::string_view location : table_.locations) builder_.add_location(location);
    for (const TensorSpec& spec : table_.tensors) {
      const catalog::TensorInput tensor = input_of(spec);
      if (!builder_.add_tensor(tensor)) return refuse(spec, tensor);
    }
    if (builder_.has_ambiguous_names()) TRY(check_keys());
    return std::move(builder_).finish();
  }

 private:
  static catalog::Counts count(const CatalogInput& input) {
    const TensorTable& table = input.table;
    std::uint64_t locations = 0;
    for (std::string_view location : table.locations) locations += location.size();
    return {table.tensors.size(),   input.extents.size(),
            table.dim_count,        table.path_parts,
            table.locations.size(), table.name_bytes + table.storages.key_bytes() + locations};
  }

  void add_storages() {
    for (std::size_t i = 0; i < input_.extents.size(); ++i) {
      const zip::StorageExtent& extent = input_.extents[i];
      builder_.add_storage(table_.storages.storages()[i].key, extent.payload_offset, extent.nbytes,
                           extent.crc32);
    }
  }

  catalog::TensorInput input_of(const TensorSpec& spec) {
    catalog::TensorInput tensor{
        {},         {0, 0},    spec.dims,     spec.storage_offset, spec.storage, spec.location,
        spec.dtype, spec.rank, flags_of(spec)};
    if (spec.path != TensorSpec::is_root) add_name(spec, tensor);
    return tensor;
  }

  std::uint8_t flags_of(const TensorSpec& spec) const noexcept {
    unsigned flags = 0;
    if (input_.foreign_byte_order && swap_unit(spec.dtype) > 1) flags |= TensorView::foreign_order;
    if (spec.flags & TensorSpec::conjugate) flags |= TensorView::conjugate;
    if (spec.flags & TensorSpec::negative) flags |= TensorView::negative;
    if (spec.flags & TensorSpec::requires_grad) flags |= Entry::requires_grad;
    if (spec.flags & TensorSpec::parameter) flags |= Entry::parameter;
    return static_cast<std::uint8_t>(flags);
  }

  void add_name(const TensorSpec& spec, catalog::TensorInput& tensor) {
    if (spec.path != prefix_path_) enter(spec.path);
    const KeyText key(input_.tree, spec.key);
    const std::string_view text = key.text();
    char* to;
    tensor.name = builder_.add_text(static_cast<std::uint32_t>(prefix_.size() + text.size()), to);
    std::copy(text.begin(), text.end(), std::copy(prefix_.begin(), prefix_.end(), to));
    const PathNode& parent = table_.paths[spec.path];
    if (parent.depth == 0 && !key.is_integer()) {
      tensor.path = {Path::is_name, 1};
      return;
    }
    tensor.path = {builder_.path_position(), std::uint32_t{parent.depth} + 1};
    for (std::uint32_t part : prefix_parts_) builder_.add_path_part(part >> 1, (part & 1) != 0);
    builder_.add_path_part(static_cast<std::uint32_t>(text.size()), key.is_integer());
  }

  // Makes prefix_ the joined name of this container with a dot behind it. Neighbouring tensors
  // share it, so it is kept.
  void enter(std::uint32_t path) {
    prefix_path_ = path;
    prefix_.clear();
    prefix_parts_.clear();
    chain_.clear();
    for (std::uint32_t node = path; table_.paths[node].depth != 0; node = table_.paths[node].parent)
      chain_.push_back(node);
    std::for_each(chain_.rbegin(), chain_.rend(), [this](std::uint32_t node) {
      const KeyText key(input_.tree, table_.paths[node].key);
      prefix_.append(key.text()).push_back('.');
      prefix_parts_.push_back(static_cast<std::uint32_t>(key.text().size() << 1) |
                              (key.is_integer() ? 1u : 0u));
    });
  }

  [[gnu::cold]] tl::unexpected<Error> refuse(const TensorSpec& spec,
                                             const catalog::TensorInput& tensor) {
    enter(spec.path == TensorSpec::is_root ? 0 : spec.path);
    std::string name = prefix_;
    if (spec.path != TensorSpec::is_root) name += KeyText(input_.tree, spec.key).text();
    return failure(ErrorCode::corrupt,
                   "tensor " + bytes::quote(name) + " " + builder_.explain(tensor),
                   input_.pickle_offset + spec.position);
  }

  // Two tensors of one name are two ways to write it, unless they lie in one dict under one key.
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
    const auto twice = std::adjacent_find(places.begin(), places.end());
    if (twice == places.end()) return {};
    return tl::unexpected<Error>(key_twice(input_.tree, twice->key.cell(), input_.pickle_offset));
  }

  const CatalogInput& input_;
  const TensorTable& table_;
  catalog::CatalogBuilder builder_;
  std::uint32_t prefix_path_ = 0;
  std::string prefix_;
  std::vector<std::uint32_t> prefix_parts_;  // as Path describes them
  std::vector<std::uint32_t> chain_;
};

}  // namespace

Result<catalog::Catalog> make_catalog(const CatalogInput& input,
                                      std::pmr::memory_resource& memory) {
  // Offsets inside the block are 32 bits wide.
  constexpr std::uint64_t max = std::numeric_limits<std::uint32_t>::max();
  if (input.table.dim_count > max || input.table.path_parts > max ||
      input.table.name_bytes + input.table.storages.key_bytes() > max / 2)
    return failure(ErrorCode::limit_exceeded,
                   "the names and shapes of the tensors need more than "
                   "the 4 GiB that a catalog can address");
  return CatalogMaker(input, memory).make();
}

}  // namespace weightmap::torch
