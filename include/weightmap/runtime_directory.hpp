// Where processes of one user meet: the elections of WarmOptions::one_reader and the socket of
// `weightmap hold`.
#pragma once

#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID. Makes it,
// with mode 0700, if it is not there. Fails with io if the system refuses, or if what is there is
// no folder, belongs to somebody else, or lets others in.
WEIGHTMAP_API Result<std::filesystem::path> runtime_directory();

}  // namespace weightmap
