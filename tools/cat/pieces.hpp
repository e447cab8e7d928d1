// A tensor's elements in pieces, so that memory stays bounded whatever its size.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// Takes consecutive bytes; answers false to stop early.
using ByteSink = std::function<bool(std::span<const std::byte>)>;

// Hands out all elements row-major and in this machine's byte order. Straight from the mapping
// where they lie there like that, else in copies of at most 16 MiB; a tensor of more than
// TensorView::max_slice_rank dimensions is copied whole.
Result<void> for_each_piece(const TensorView& view, const ByteSink& sink);

}  // namespace weightmap::cli
