// The directory where processes of one user meet: for the elections of WarmOptions::one_reader, and
// for the socket of `weightmap hold`.
#pragma once

#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Returns $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID.
// Makes the directory, with mode 0700, if it does not exist. Fails with invalid_argument if
// $WEIGHTMAP_RUNTIME_DIR is a relative path (a relative $XDG_RUNTIME_DIR is ignored, as its
// specification demands), with io if the system refuses, or if what exists is not a directory, is a
// symbolic link, belongs to another user, or lets other users in. May be called from any thread.
WEIGHTMAP_API Result<std::filesystem::path> runtime_directory();

}  // namespace weightmap
