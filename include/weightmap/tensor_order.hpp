// The order in which a program needs its tensors, kept as text from one start to the next.
//
//   const std::string path = "model.pt.order";  // where `weightmap warm` looks
//   weightmap::WarmOptions options;
//   const auto order = weightmap::load_tensor_order(checkpoint, path);
//   if (order) options.tensors = order->tensors;
//   auto warmer = weightmap::Warmer::start(checkpoint, options);
//   ... checkpoint.demand(tensor), which reads it at once, for each tensor that is needed ...
//   const auto saved = weightmap::save_tensor_order(checkpoint, checkpoint.demand_order(), path);
//
// An order file is UTF-8 text with one tensor on each line, and people may write it, too. A line is
// a pattern (name_pattern.hpp) and stands for all tensors whose names match, in the order of
// tensors(); if two tensors share a name, for both. Blanks at either end of a line, empty lines and
// lines that begin with # are skipped. In a saved name, a backslash, a quotation mark, *, ?, [ and
// #, blanks at either end, control characters and what is not UTF-8 are written as \xHH; the empty
// name is \ alone. All functions may be called from any thread.
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
  // Positions in Checkpoint::tensors(), each once: where two lines name a tensor, the first counts.
  // Empty if the file holds nothing but comments; mind that WarmOptions takes that for all tensors.
  std::vector<std::size_t> tensors;
  std::size_t unmatched_lines = 0;  // lines that name no tensor of this checkpoint
};

// Writes the names of `tensors`, which are positions in Checkpoint::tensors(), to a new file in the
// directory of `path`, and then renames it to `path`, so that readers see the old order or the new
// one. A name that would take a line of more than 1 MiB is left out. Fails with invalid_argument if
// there is no such tensor, or if `path` is the checkpoint itself or not a regular file; with
// limit_exceeded beyond 64 MiB; with io if the system refuses to write.
WEIGHTMAP_API Result<void> save_tensor_order(const Checkpoint& checkpoint,
                                             std::span<const std::size_t> tensors,
                                             const std::filesystem::path& path);

// Reads what save_tensor_order() or a person wrote. Lines that match nothing are counted and
// skipped, since a model changes from one training run to the next. Fails with invalid_argument if
// no line matches, since the order is then that of another model; with io if the file cannot be
// read or is not a regular file (a FIFO is not waited for); with limit_exceeded if it has more than
// 64 MiB, a line of more than 1 MiB, or lines with wildcards of together more than 64 KiB.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(const Checkpoint& checkpoint,
                                                    const std::filesystem::path& path);
// The same of any names, such as those of several checkpoints: positions in `names`.
WEIGHTMAP_API Result<TensorOrder> load_tensor_order(std::span<const std::string_view> names,
                                                    const std::filesystem::path& path);

}  // namespace weightmap
