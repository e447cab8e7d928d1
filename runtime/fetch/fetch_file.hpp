// Fetches one file of a remote checkpoint whose metadata is known.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/state.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct FetchFile {
  const Checkpoint& checkpoint;
  const SourceFile& file;  // of the checkpoint
  const std::filesystem::path& path;
  bool replaces;
  bool is_checkpoint;  // by itself: then the copy is opened before it gets its name
};

// See fetch(). Errors name no file.
Result<FetchReport> fetch_file(const FetchFile& what, const FetchOptions& options);

// Opens the metadata of a remote checkpoint, to fetch it.
Result<Checkpoint> open_to_fetch(std::shared_ptr<RangeSource> source);

// True if the file at the path was fetched by fetch_file(), and has this version.
bool is_there(const std::filesystem::path& path, const RemoteVersion& version);

}  // namespace weightmap
