// One catalog of the tensors of several files, from a catalog of each.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/catalog/catalog.hpp"
#include "weightmap/result.hpp"

namespace weightmap::catalog {

struct MergePart {
  const Catalog* catalog;      // as if its file were alone
  std::uint64_t base;          // of the file, which is added to all positions
  std::uint32_t source;        // the file's number
  std::vector<bool> chosen{};  // of each tensor, whether it is taken; empty: all are
};

// The chosen tensors and their storages, in the order of the parts. Names that come twice are
// ambiguous, as in any catalog. Fails with limit_exceeded if one catalog cannot hold them. Throws
// std::bad_alloc.
Result<Catalog> merge(std::span<const MergePart> parts, std::uint32_t most_tensors,
                      std::pmr::memory_resource& memory);

}  // namespace weightmap::catalog
