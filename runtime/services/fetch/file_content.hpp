// What a checkpoint's catalog says of the bytes of one of its files.
#pragma once

#include <cstdint>

#include "runtime/base/bytes/range_set.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/fetch/fetch_plan.hpp"
#include "runtime/services/fetch/storage_sums.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {

// Sums the storages of the file that have a checksum and lie in it as they are, unless the options
// say no. Borrows the keys.
StorageSums sums_of(const Checkpoint::State& state, const SourceFile& file,
                    const FetchOptions& options);

// Plans what `present` lacks of the file, in the order of the options.
FetchPlan plan_of(const Checkpoint::State& state, const SourceFile& file,
                  const bytes::RangeSet& present, const StorageSums& sums,
                  const FetchOptions& options);

// The size of the pieces of that plan, at most.
std::uint64_t longest_piece(const FetchOptions& options) noexcept;

}  // namespace weightmap
