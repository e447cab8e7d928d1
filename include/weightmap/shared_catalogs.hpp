// Lists and clears up the catalogs that the processes of this user share
// (OpenOptions::shared_catalog).
//
// The first process that opens a checkpoint with that option writes its catalog, the table of the
// tensors, to a file in the user's runtime directory (runtime_directory.hpp). Processes that come
// later map that file and parse nothing. The file's name is made of the checkpoint's identity, size
// and times (generation.hpp), so one that was replaced or written to has no catalog there. Of a set
// of shards it lists these facts of every file, and is used only if none differs. What lies there
// is validated before it is used: the file belongs to this user and nobody else may read it, its
// checksums are right, and each number is within its bounds. A process of the same user can
// forge a catalog of other content, just as it can change the checkpoint; docs/security.md has the
// details.
//
// A file is never changed once it has its name, and it is not locked while it is used. One file for
// each version of a checkpoint stays until it is removed here, or by the system when the user logs
// out or the machine is restarted. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

enum class SharedFileState : std::uint8_t {
  current,     // a catalog whose checkpoint is still the one it was made of, with all its files
  unknown,     // a catalog that does not say where its checkpoint is
  changed,     // a catalog of which a file was replaced or written to
  gone,        // a catalog of which a file does not exist any more, or cannot be looked at
  unreadable,  // a catalog of another version of this library, or damaged at its beginning
  leftover,    // half a catalog, or a lock that nobody holds: its process ended
};
// Returns "current", "unknown", ...
WEIGHTMAP_API std::string_view to_string(SharedFileState state) noexcept;

struct SharedFile {
  std::string name;  // in the runtime directory
  std::uint64_t bytes = 0;
  SharedFileState state = SharedFileState::unreadable;
  std::string checkpoint;  // path of its first file when it was opened; empty if unknown
  std::uint64_t tensors = 0;
};

// Returns the published catalogs, ordered by name. Fails with io if there is no runtime directory
// and none can be made.
WEIGHTMAP_API Result<std::vector<SharedFile>> shared_catalogs();

// Removes the catalogs that are neither current nor unknown, files that were not finished, and lock
// files of warm-ups that nobody holds; answers what it removed. Processes that use what is removed
// go on with it.
WEIGHTMAP_API Result<std::vector<SharedFile>> remove_stale_catalogs();

}  // namespace weightmap
