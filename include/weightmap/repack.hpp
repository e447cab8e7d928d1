// Writes a checkpoint again, laid out in another way.
//
//   weightmap::RepackOptions options;
//   options.alignment = 2 << 20;  // so that huge pages can map each large storage by itself
//   options.order = {"embed.weight", "layers.0.weight"};
//   const auto report = weightmap::repack("model.pt", "model.pt", options);
//
// What is not asked for stays: the pickle, the records besides those of tensors, the byte order,
// the name of the top folder, whether there are CRCs. A file of torch.save is copied byte for byte.
// Records that were deflated are stored, and what this library knows as padding is made anew.
//
// Bytes are read, never mapped, and each record is compared with its CRC-32 on the way, so damage
// is an error and does not get a new CRC-32. Memory is that of the pickle. The new file appears as
// NewFile does it (new_file.hpp), also in the place of the old one, which stays whole for those
// who have it mapped. After an error nothing is left behind. repack() may be called from any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct RepackOptions {
  // As in CheckpointWriterOptions. Unset: as it was.
  std::optional<std::uint64_t> alignment = {};
  // Names of tensors: their storages come first in the file, in this order, and behind them the
  // others as they were. An array in the pickle stays there. Empty: all as they were.
  std::vector<std::string> order = {};
  // Unset: if the file has CRCs.
  std::optional<bool> crc32 = {};
  Limits limits = {};        // on reading the old file
  NewFileOptions file = {};  // of the new one
  Progress progress = {};    // from the thread that calls, in bytes of the new file
};

struct RepackReport {
  std::uint64_t old_bytes = 0;  // of the files
  std::uint64_t new_bytes = 0;
  std::uint64_t alignment = 0;  // of storages that are as large
  std::uint64_t storages = 0;   // of the new file
};

// Fails as Checkpoint::open() and ArchiveWriter do; with not_found if `order` names no tensor; with
// invalid_argument for an alignment that cannot be; with unsupported for an order of a legacy
// stream, whose pickle decides about it; with corrupt if a record does not match its CRC-32; with
// io if the file is written to or becomes shorter meanwhile.
WEIGHTMAP_API Result<RepackReport> repack(const std::filesystem::path& from,
                                          const std::filesystem::path& to,
                                          const RepackOptions& options = {});

}  // namespace weightmap
