// The items of tensors whose places are proven when they are first used: one by one, or all in one
// pass in the order of the files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/formats/dcp/assemble.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "runtime/formats/dcp/read_items.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// All chunks of all tensors, in the order of the metadata, which must outlive them.
std::vector<ItemRead> reads_of(const Metadata& metadata);

// The tensors with the places of their pieces. `reads` may have any order, and are moved.
std::vector<Whole> wholes(const Metadata& metadata, std::span<ItemRead> reads);

// `tensors` were assembled of what expect_item() has filled in; they tell which piece is which of
// the catalog. The files must stay open, where they are. Refuses items whose byte order is another
// than `is_foreign` says.
format::LatePlaces late_places(std::shared_ptr<const Metadata> metadata,
                               std::span<const Whole> tensors, std::span<const DataFile> files,
                               const OpenOptions& options, bool is_foreign);

}  // namespace weightmap::dcp
