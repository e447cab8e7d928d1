// The directory in which processes of one user cooperate: for the elections of
// WarmOptions::one_reader, and for the socket of `weightmap hold`.
#pragma once

#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Returns $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID.
// Creates the directory with mode 0700 if needed. Fails with invalid_argument if
// $WEIGHTMAP_RUNTIME_DIR is a relative path (a relative $XDG_RUNTIME_DIR is ignored, as its
// specification requires), with io if the system refuses, or if the existing path is not a
// directory, is a symbolic link, belongs to another user, or is accessible to other users. May be
// called from any thread.
WEIGHTMAP_API Result<std::filesystem::path> runtime_directory();

}  // namespace weightmap
