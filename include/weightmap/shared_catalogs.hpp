// The catalogs that the processes of this user share (OpenOptions::shared_catalog).
//
// The first process that opens a checkpoint with that option writes its catalog, the table of the
// tensors, to a file in the user's runtime directory: $WEIGHTMAP_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID, mode 0700. Those that come later map
// that file and parse nothing. The file's name is the generation of the checkpoint, so a checkpoint
// that was replaced or written to has no catalog there. What lies there is used only as far as it
// proves right: the file belongs to this user and nobody else may read it, its sums fit, and each
// number is within its bounds when it is used. Nothing else is believed of it; a process that runs
// as the same user can put a catalog of other content there, as it can change the checkpoint.
//
// A file is never changed once it has its name, and none is locked while it is used. One for each
// generation stays until it is removed here, or by the system when the user logs out or the machine
// is started again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

enum class SharedFileState : std::uint8_t {
  current,     // a catalog whose checkpoint is still the one it was made of
  unknown,     // a catalog that does not say where its checkpoint is
  changed,     // its checkpoint was replaced or written to
  gone,        // its checkpoint is not there any more, or cannot be looked at
  unreadable,  // no catalog of this version, or damaged at its beginning
  leftover,    // what a process that ended left behind: half a catalog, a lock that nobody holds
};
// "current", "unknown", ...
WEIGHTMAP_API std::string_view to_string(SharedFileState state) noexcept;

struct SharedFile {
  std::string name;  // in the runtime directory
  std::uint64_t bytes = 0;
  SharedFileState state = SharedFileState::unreadable;
  std::string checkpoint;  // its path when it was opened; empty where that is not known
  std::uint64_t tensors = 0;
};

// The published catalogs, by name. Fails with io if there is no runtime directory and none can be
// made.
WEIGHTMAP_API Result<std::vector<SharedFile>> shared_catalogs();

// Removes the catalogs that are neither current nor unknown, files that were not finished, and lock
// files of warm-ups that nobody holds; answers what it removed. Processes that use what is removed
// go on with it. Not to be called by a process that is itself warming up: closing a lock file gives
// up the process's locks on it.
WEIGHTMAP_API Result<std::vector<SharedFile>> remove_stale_catalogs();

}  // namespace weightmap
