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
  bool copy = false;         // keeps `from` in place and publishes a copy
  bool verify_crc = false;   // first compares every byte of `from` with its CRC-32
  bool any_content = false;  // `from` need not be a checkpoint, and is not checked
  bool any_format = false;   // `from` may have another format than `target` has
  bool follow = false;       // `from` may be a symbolic link, which is resolved
  Progress progress = {};    // for the checksums, then for the copy; see OpenOptions::progress
};

struct PublishReport {
  Generation generation;  // of the file that `target` names now
  bool replaced = false;  // a file of this name existed before
  bool copied = false;    // `from` still exists: a copy was requested or needed
  std::uint64_t bytes = 0;
};

// Makes `target` name the checkpoint `from`, atomically and durably: opening `target` finds the
// complete old or new file, also after a loss of power. Processes that have the old file open keep
// it. Within a file system the file is renamed; otherwise it is first copied into the directory of
// `target`, as a reflink where supported, under a name that begins with a dot. A followed link
// stays, and dangles once its file was renamed.
//
// If `target` exists, its permissions are kept, and its owner and group as far as this process may
// set them; if the group cannot be kept, it gets no rights. Otherwise the new file has those of
// `from`.
//
// If publish() fails, `target` is unchanged and no new file is left behind. It fails as
// Checkpoint::open() does if `from` is not a checkpoint; with unsupported if it is one of several
// files; with invalid_argument if its format is not that of the file that `target` names, or not
// that which the ending of the name promises (.safetensors, .gguf, .npz), if `target` is a
// symbolic link, if `from` is one and is neither followed nor copied, if `target` exists and is not
// a regular file, or if both are the same file; with io if the system refuses, or if `from` was
// written to meanwhile. An io error that says "is in place, but" means that `target` is the new
// file, but was written to at the last moment, or may not survive a loss of power.
WEIGHTMAP_API Result<PublishReport> publish(const std::filesystem::path& from,
                                            const std::filesystem::path& target,
                                            const PublishOptions& options = {});

}  // namespace weightmap
