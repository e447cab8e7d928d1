// A legacy stream that is written as the archive that torch.save has written since 1.6.
#pragma once

#include <filesystem>

#include "weightmap/checkpoint.hpp"
#include "weightmap/repack.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The same object in the same pickle, but for the references to its storages, which are numbered in
// the order of first reference. Fails as repack() does; with unsupported for options that change
// tensors, and for references to parts of storages.
Result<RepackReport> repack_legacy(const Checkpoint& source, const std::filesystem::path& to,
                                   const RepackOptions& options);

}  // namespace weightmap
