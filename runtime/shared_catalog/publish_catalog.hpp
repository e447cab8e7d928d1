// Hands a checkpoint's catalog on to other processes.
#pragma once

#include <string>

#include "mmap/process/runtime_directory.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the names of published catalogs begin with. Another layout gets another name, so that
// versions do not replace one another's.
inline constexpr std::string_view catalog_prefix = "catalog-4-";
// How the name of one begins that was not finished; it ends with ".tmp".
inline constexpr std::string_view unfinished_prefix = ".catalog-";

// The file in the runtime directory that has the catalog of these files, as they are now: named by
// the generations of all files that an open comes to without reading one, so by that of an index
// for the files that it names.
std::string catalog_name(const Checkpoint::State& state);

// Publishes the catalog that the checkpoint has parsed. Precondition: it has one of its own. Fails
// with io if the system refuses, or if the file was changed so shortly before it was opened that
// its times cannot tell it from what it may become.
Result<void> publish_catalog(Checkpoint::State& state, const os::RuntimeDirectory& directory);

// Puts the checkpoint's own catalog where the damaged one is, or removes that if there is none.
// Whether it can is nobody's concern: who opens next will find it damaged, too.
void replace_damaged_catalog(Checkpoint::State& state) noexcept;

// See Checkpoint::share_catalog(). The caller owns the descriptor.
Result<int> seal_catalog(Checkpoint::State& state);

}  // namespace weightmap
