// Fetches one file of a remote checkpoint whose metadata is known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/checkpoint/state.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct FetchFile {
  const Checkpoint& checkpoint;
  const SourceFile& file;  // of the checkpoint
  const std::filesystem::path& path;
  bool replaces;
  bool is_checkpoint;                  // by itself: then the copy is opened before it gets its name
  std::string journal = {};            // its first line, if this goes on only with what has it
  const Sha256Sums* beside = nullptr;  // as known_sum() has it
  // Of memory for what is received, as far as it can do with that; 0: a fourth of what there is.
  std::uint64_t buffer_bytes = 0;
};

// See fetch(). Errors name no file.
Result<FetchReport> fetch_file(const FetchFile& what, const FetchOptions& options);
// In two steps: until the file is whole and on the disk, as `path`.part; and its name. The second
// one fails with io if another fetch has changed the part.
Result<FetchReport> fetch_part(const FetchFile& what, const FetchOptions& options);
Result<void> publish_part(const FetchFile& what);

// Opens the metadata of a remote checkpoint, to fetch it.
Result<Checkpoint> open_to_fetch(std::shared_ptr<RangeSource> source);

}  // namespace weightmap
