// Opening a checkpoint: from a file to a state that serves it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// The first stage of every open: the files, under the protection that the options ask for; of a
// folder those that are its checkpoint. Nothing of them is read yet. `options` are complete.
Result<std::unique_ptr<Checkpoint::State>> begin_open(std::span<const std::filesystem::path> paths,
                                                      const OpenOptions& options);
Result<std::unique_ptr<Checkpoint::State>> begin_open(int descriptor, const OpenOptions& options);
// The files that this would open, an index with those that it names. A file of another content is
// one file.
Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path);
// What is now at the paths that `old` was opened by, with its options and its format, by the same
// names.
Result<std::unique_ptr<Checkpoint::State>> begin_again(const Checkpoint::State& old);

// Reads the metadata of the files afresh and compares the place of every storage with what stands
// before it in its file.
Result<void> verify_headers(const Checkpoint::State& state);

// The stages behind the first: parses the files, to which those that an index names are added, maps
// them, and compares checksums if the options ask for that.
Result<Checkpoint> finish_open(std::unique_ptr<Checkpoint::State> state);

// All stages, for files of a format that is known.
Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                              const format::Format& format, const OpenOptions& options);

}  // namespace weightmap
