#include "runtime/torch/make_catalog.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/catalog/builder.hpp"
#include "runtime/catalog/view_size.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::torch {
namespace {

using catalog::Entry;
using catalog::Path;
using Size = catalog::ViewSize;

class CatalogMaker {
 public:
  CatalogMaker(const CatalogInput& input, std::pmr::memory_resource& memory)
      : input_(input), table_(input.table), builder_(count(input), memory) {}

  Result<catalog::Catalog> make() && {
    add_storages();
    for (std::string_view location : table_.locations) builder_.add_location(location);
    for (const TensorSpec& spec : table_.tensors)
      if (!add(spec)) return out_of_bounds(spec);
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

  // False if the view leaves its storage.
  bool add(const TensorSpec& spec) {
    const Shape* shape = shape_of(spec);
    Entry entry{};
    if (shape == nullptr || !place(spec, shape->size, entry)) return false;
    entry.storage_offset = spec.storage_offset;
    entry.storage = spec.storage;
    entry.location = spec.location;
    entry.dtype = spec.dtype;
    entry.rank = spec.rank;
    entry.flags = flags_of(spec);
    entry.dims = shape->dims;
    entry.nbytes = shape->size.nbytes;
    add_name(spec, entry);
    builder_.add_entry(entry);
    return true;
  }

  // Sets file_offset and extent; false if the view leaves its storage.
  bool place(const TensorSpec& spec, const Size& size, Entry& entry) const noexcept {
    const zip::StorageExtent& storage = input_.extents[spec.storage];
    std::uint64_t start;
    entry.extent = size.extent;
    const bool fits =
        bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(spec.storage_offset),
                                          element_size(spec.dtype), &start) &&
        bytes::contains(storage.nbytes, start, entry.extent);
    // An empty view may begin anywhere; it has no element that could lie outside.
    entry.file_offset = storage.payload_offset + (fits ? start : 0);
    return fits || entry.extent == 0;
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

  void add_name(const TensorSpec& spec, Entry& entry) {
    if (spec.path == TensorSpec::is_root) {
      entry.path = {0, 0};
      return;
    }
    if (spec.path != prefix_path_) enter(spec.path);
    const KeyText key(input_.tree, spec.key);
    const std::string_view text = key.text();
    char* to;
    entry.name = builder_.add_text(static_cast<std::uint32_t>(prefix_.size() + text.size()), to);
    std::copy(text.begin(), text.end(), std::copy(prefix_.begin(), prefix_.end(), to));
    const PathNode& parent = table_.paths[spec.path];
    if (parent.depth == 0 && !key.is_integer()) {
      entry.path = {Path::is_name, 1};
      return;
    }
    entry.path = {builder_.path_position(), parent.depth + 1};
    for (std::uint32_t part : prefix_parts_) builder_.add_path_part(part >> 1, (part & 1) != 0);
    builder_.add_path_part(static_cast<std::uint32_t>(text.size()), key.is_integer());
  }

  // What the tensors with the same sizes, strides and dtype have in common.
  struct Shape {
    bool is_known = false;
    const std::int64_t* from = nullptr;  // where a scalar's dims may well lie
    DType dtype = DType::uint8;
    std::uint8_t rank = 0;
    std::uint32_t dims = 0;  // in the catalog
    Size size;
  };

  // Tensors of one shape often share the dims of their specs; then they share those of the catalog.
  // nullptr if the numbers do not fit 63 bits.
  const Shape* shape_of(const TensorSpec& spec) {
    Shape& known = shapes_[reinterpret_cast<std::uintptr_t>(spec.dims) / 16 % shapes_.size()];
    if (known.is_known && known.from == spec.dims && known.dtype == spec.dtype &&
        known.rank == spec.rank)
      return &known;
    Shape shape{true, spec.dims, spec.dtype, spec.rank, 0, {}};
    if (!catalog::measure(spec.dtype, spec.dims, spec.rank, shape.size)) return nullptr;
    shape.dims = builder_.add_dims({spec.dims, std::size_t{2} * spec.rank});
    known = shape;
    return &known;
  }

  // Makes prefix_ the joined name of this container with a dot behind it. Neighbouring tensors
  // share it, so it is kept.
  void enter(std::uint32_t path) {
    prefix_path_ = path;
    prefix_.clear();
    prefix_parts_.clear();
    chain_.clear();
    for (std::uint32_t node = path; node != 0; node = table_.paths[node].parent)
      chain_.push_back(node);
    std::for_each(chain_.rbegin(), chain_.rend(), [this](std::uint32_t node) {
      const KeyText key(input_.tree, table_.paths[node].key);
      prefix_.append(key.text()).push_back('.');
      prefix_parts_.push_back(static_cast<std::uint32_t>(key.text().size() << 1) |
                              (key.is_integer() ? 1u : 0u));
    });
  }

  [[gnu::cold]] tl::unexpected<Error> out_of_bounds(const TensorSpec& spec) {
    enter(spec.path == TensorSpec::is_root ? 0 : spec.path);
    const std::string_view key = table_.storages.storages()[spec.storage].key;
    std::string name = prefix_;
    if (spec.path != TensorSpec::is_root) name += KeyText(input_.tree, spec.key).text();
    return failure(ErrorCode::corrupt,
                   "tensor " + bytes::quote(name) + " reaches beyond its storage " +
                       bytes::quote(key) + " of " +
                       std::to_string(input_.extents[spec.storage].nbytes) +
                       " bytes: storage offset " + std::to_string(spec.storage_offset) + ", " +
                       dims_text(spec),
                   input_.pickle_offset + spec.position);
  }

  [[gnu::cold]] static std::string dims_text(const TensorSpec& spec) {
    std::string text = "shape [";
    for (std::size_t i = 0; i < std::size_t{2} * spec.rank; ++i) {
      if (i == spec.rank) text += "], strides [";
      if (i % spec.rank != 0) text += ", ";
      text += std::to_string(spec.dims[i]);
    }
    return text + "]";
  }

  const CatalogInput& input_;
  const TensorTable& table_;
  catalog::CatalogBuilder builder_;
  std::uint32_t prefix_path_ = 0;
  std::string prefix_;
  std::vector<std::uint32_t> prefix_parts_;  // as Path describes them
  std::vector<std::uint32_t> chain_;
  std::array<Shape, 64> shapes_;
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
