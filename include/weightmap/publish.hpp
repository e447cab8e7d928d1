// Replacing a checkpoint under the processes that have it open.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct PublishOptions {
  bool copy = false;        // keep `from` where it is, and publish a copy
  bool verify_crc = false;  // compare every byte of `from` with its CRC-32 first
};

struct PublishReport {
  Generation generation;  // of what `target` names now
  bool replaced = false;  // there was a file of this name before
  bool copied = false;    // `from` is still there: a copy was asked for, or the only way
  std::uint64_t bytes = 0;
};

// Makes `target` name the checkpoint `from`, at once and durably: whoever opens `target` finds the
// old file or the new one, whole, also after a loss of power. Processes that have the old file open
// keep it. Within a file system the file is renamed; else it is copied into the folder of `target`
// first, as a reflink where the file system can, under a name that begins with a dot.
//
// If there is a target, its permissions are kept, and its owner where this process may give files
// away; else those of `from` are.
//
// Fails, and leaves `target` as it was and no new file behind: as Checkpoint::open() does if `from`
// is not a checkpoint; with invalid_argument if one of the two is a symbolic link, or `target` is
// there and no regular file, or both are the same file; with io if the system refuses, or if `from`
// was written to meanwhile. An io error that says "published, but" means that `target` is the new
// file and that the system did not confirm that this will outlive a loss of power.
WEIGHTMAP_API Result<PublishReport> publish(const std::filesystem::path& from,
                                            const std::filesystem::path& target,
                                            const PublishOptions& options = {});

}  // namespace weightmap
