// Replaces a checkpoint while other processes have it open. May be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct PublishOptions {
  bool copy = false;         // keep `from` where it is, and publish a copy
  bool verify_crc = false;   // compare every byte of `from` with its CRC-32 first
  bool any_content = false;  // `from` need not be a checkpoint, and nothing in it is looked at
  bool follow = false;       // `from` may be a symbolic link, and stands for what it leads to
  Progress progress = {};  // of the checksums, then of the copy; as OpenOptions::progress is called
};

struct PublishReport {
  Generation generation;  // of the file that `target` names now
  bool replaced = false;  // there was a file of this name before
  bool copied = false;    // `from` still exists: a copy was asked for, or was the only way
  std::uint64_t bytes = 0;
};

// Makes `target` name the checkpoint `from`, atomically and durably: whoever opens `target` finds
// the old file or the new one, whole, also after a loss of power. Processes that have the old file
// open keep it. Within a file system the file is renamed; otherwise it is first copied into the
// directory of `target`, as a reflink where the file system can, under a name that begins with a
// dot. A link that is followed stays, and leads to nothing once its file was renamed.
//
// If `target` exists, its permissions are kept, and its owner and group where this process may give
// files to them; where the group cannot be kept, it has no rights. Otherwise the new file has those
// of `from`.
//
// If publish() fails, `target` is as it was and no new file is left behind. It fails as
// Checkpoint::open() does if `from` is not a checkpoint; with unsupported if it is one of several
// files; with invalid_argument if `target` is a
// symbolic link, if `from` is one and is neither followed nor copied, if `target` exists and is not
// a regular file, or if both are the same file; with io if the system refuses, or if `from` was
// written to meanwhile. An io error that says "is in place, but" means that `target` is the new
// file, and that it was written to at the last moment, or that the system did not confirm that this
// will outlive a loss of power.
WEIGHTMAP_API Result<PublishReport> publish(const std::filesystem::path& from,
                                            const std::filesystem::path& target,
                                            const PublishOptions& options = {});

}  // namespace weightmap
