// Opening a checkpoint: from a file to a state that serves it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// The first stage of every open: the files, under the protection that the options ask for. Nothing
// of them is read yet. `options` are complete.
Result<std::unique_ptr<Checkpoint::State>> begin_open(std::span<const std::filesystem::path> paths,
                                                      const OpenOptions& options);
Result<std::unique_ptr<Checkpoint::State>> begin_open(int descriptor, const OpenOptions& options);
// The files that are now at the paths of `old`, with its options and its format, by the names that
// it was opened by.
Result<std::unique_ptr<Checkpoint::State>> begin_again(const Checkpoint::State& old);

// What a format reads the metadata of the files from. `memory` holds what is read.
std::vector<format::Input> inputs_of(const Checkpoint::State& state,
                                     std::pmr::memory_resource& memory);
Result<const format::Format*> format_of(const Checkpoint::State& state, format::Input& first);

// The stages between: parses the files and maps them; or only maps them, for a state that has a
// catalog of another process.
Result<void> parse_and_map(Checkpoint::State& state);
// `being_filled`: others write to the file at this moment (fill.hpp).
Result<void> map(Checkpoint::State& state, bool being_filled = false);

// The last stage of every open: checksums, if the options ask for them.
Result<Checkpoint> finish_open(std::unique_ptr<Checkpoint::State> state);

// The stages behind the first, for what takes no shared catalog: several files, or a descriptor.
Result<Checkpoint> open_alone(std::unique_ptr<Checkpoint::State> state);

// All stages, for files of a format that is known.
Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                              const format::Format& format, const OpenOptions& options);

}  // namespace weightmap
