// Combines the pickle's tensors with the places of their storages into the frozen catalog.
#pragma once

#include <memory_resource>
#include <span>
#include <string_view>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/formats/format/tensor_nodes.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Key prefix of a storage in the pickle itself; its position follows. No record has this name.
inline constexpr std::string_view array_folder = "data.pkl/";

struct CatalogInput {
  const value::Tree& tree;
  const TensorTable& table;
  std::span<const zip::StorageExtent> extents;  // of table.storages, in their order
  bool foreign_byte_order;
  std::uint64_t pickle_offset;  // for error messages and the arrays in the pickle
  // Positions from here on lie in no file; see format::Input.
  std::uint64_t copies_base = ~std::uint64_t{0};
};

// Fails with corrupt, naming the tensor, if a tensor leaves its storage (CatalogBuilder proves
// that) or a dict has a key twice. Throws std::bad_alloc. `memory` must outlive the catalog.
Result<catalog::Catalog> make_catalog(const CatalogInput& input, std::pmr::memory_resource& memory);

// Records the tree node of each tensor in the table.
void keep_nodes(const TensorTable& table, format::TensorNodes& nodes);

}  // namespace weightmap::torch
