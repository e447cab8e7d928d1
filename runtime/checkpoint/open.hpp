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

// Compares the place of every storage with what stands before it in its file.
Result<void> verify_headers(const Checkpoint::State& state, const catalog::Catalog& catalog);

// The stages between: parses the files, to which those that an index names are added, and maps
// them; or only maps them, for a state that has a catalog of another process.
Result<void> parse_and_map(Checkpoint::State& state);
// `being_filled`: others write to the file at this moment (fill.hpp).
Result<void> map(Checkpoint::State& state, bool being_filled = false);

// The last stage of every open: checksums, if the options ask for them.
Result<Checkpoint> finish_open(std::unique_ptr<Checkpoint::State> state);

// The stages behind the first, for what takes no shared catalog: a list of files, or a descriptor.
Result<Checkpoint> open_alone(std::unique_ptr<Checkpoint::State> state);

// All stages, for files of a format that is known.
Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                              const format::Format& format, const OpenOptions& options);

}  // namespace weightmap
