// Tensors as the pickle describes them + where their storages are = the frozen catalog.
#pragma once

#include <memory_resource>
#include <span>

#include "runtime/catalog/catalog.hpp"
#include "runtime/torch/tensor_table.hpp"
#include "runtime/value/tree.hpp"
#include "runtime/zip/storage_offsets.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

struct CatalogInput {
  const value::Tree& tree;
  const TensorTable& table;
  std::span<const zip::StorageExtent> extents;  // of table.storages, in their order
  bool foreign_byte_order;
  std::uint64_t pickle_offset;  // for error messages
};

// Fails with corrupt, naming the tensor, if one leaves its storage (CatalogBuilder proves that), or
// if a dict has a key twice. Throws std::bad_alloc; `memory` must outlive the
// catalog.
Result<catalog::Catalog> make_catalog(const CatalogInput& input, std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
