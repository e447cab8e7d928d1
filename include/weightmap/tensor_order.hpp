// The order in which a program needs its tensors, saved as text from one start to the next.
//
//   const std::string path = "model.pt.order";  // where `weightmap warm` looks
//   weightmap::WarmOptions options;
//   const auto order = weightmap::load_tensor_order(checkpoint, path);
//   if (order) options.tensors = order->tensors;
//   auto warmer = weightmap::Warmer::start(checkpoint, options);
//   auto there = checkpoint.demand(needed);  // reads it at once; so for each that is needed
//   const auto saved = weightmap::save_tensor_order(checkpoint, checkpoint.demand_order(), path);
//
// An order file is UTF-8 text with one tensor on each line, which can also be written by hand. A
// line is a pattern (name_pattern.hpp) for all tensors whose names match, in the order of
// tensors(); two tensors of one name both match. Spaces at either end of a line, empty lines and
// lines that begin with # are skipped. In a saved name, a backslash, a quotation mark, *, ?, [ and
// #, spaces at either end, control characters and bytes that are not UTF-8 are written as \xHH; the
// empty name is \ alone. All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct TensorOrder {
  // Positions in Checkpoint::tensors(), each once: the first line that names a tensor counts. Empty
  // if the file has only comments; note that an empty WarmOptions::tensors means all tensors.
  std::vector<std::size_t> tensors;
  std::size_t unmatched_lines = 0;  // lines without a matching tensor in this checkpoint
};

// Writes the names of `tensors`, which are positions in Checkpoint::tensors(), to a new file in the
// directory of `path`, and then renames it to `path`, so that readers see the old or the new order.
// Names that would need a line of more than 1 MiB are omitted. Fails with invalid_argument if there
// is no such tensor, or if `path` is the checkpoint itself or not a regular file; with
// limit_exceeded beyond 64 MiB; with io if the system refuses to write.
WEIGHTMAP_API Result<void> save_tensor_order(const Checkpoint& checkpoint,
                                             std::span<const std::size_t> tensors,
                                             const std::filesystem::path& path);

// Reads an order file. Lines without a match are counted and skipped, since a model changes from
// one training run to the next. Fails with invalid_argument if no line matches, since the order
// then belongs to another model; with io if the file cannot be read or is not a regular file (a
// FIFO does not block); with limit_exceeded if it has more than 64 MiB, a line of more than 1 MiB,
// or lines with wildcards of more than 64 KiB together.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(const Checkpoint& checkpoint,
                                                    const std::filesystem::path& path);
// Does the same for any names, such as those of several checkpoints; returns positions in `names`.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(std::span<const std::string_view> names,
                                                    const std::filesystem::path& path);

}  // namespace weightmap
