// Opening a checkpoint: from files to a state that serves them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// `options` are complete here. One path is a file, an index, a folder or a model's name; several
// are the files of a set.
Result<Checkpoint> open_paths(std::span<const std::filesystem::path> paths,
                              const OpenOptions& options);
Result<Checkpoint> open_descriptor(int descriptor, const OpenOptions& options);
Result<Checkpoint> open_memory(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                               const OpenOptions& options);
// Opens a remote file, and those of its set. ViewMemory::mapped maps their copies, whose bytes the
// caller brings in.
Result<Checkpoint> open_arriving(std::shared_ptr<ArrivingFile> file, const OpenOptions& options,
                                 ViewMemory view_memory);
// Opens the present content of the paths of `old`, with its names and its options.
Result<Checkpoint> open_again(const Checkpoint::State& old);

}  // namespace weightmap
