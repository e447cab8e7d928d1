// Merges the catalogs of several files into one.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "weightmap/result.hpp"

namespace weightmap::catalog {

struct MergePart {
  const Catalog* catalog;      // of its file alone
  std::uint64_t base;          // of the file; added to all positions
  std::uint32_t source;        // the file's number
  std::vector<bool> chosen{};  // one flag for each tensor; empty: all are chosen
};

// Returns the chosen tensors and their storages, in the order of the parts. Repeated names are
// ambiguous, as in any catalog. Fails with limit_exceeded if they exceed a catalog. Throws
// std::bad_alloc.
Result<Catalog> merge(std::span<const MergePart> parts, std::uint32_t most_tensors,
                      std::pmr::memory_resource& memory);

}  // namespace weightmap::catalog
