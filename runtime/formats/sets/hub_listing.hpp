// What the hub says of a model: its commit and its files.
//
//   {"sha": "5c3b...", "siblings": [
//     {"rfilename": "config.json", "size": 681, "blobId": "6e2c..."},
//     {"rfilename": "model.safetensors", "size": 988097824, "blobId": "c0b1...",
//      "lfs": {"sha256": "fdf7...", "size": 988097824, "pointerSize": 135}}]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

struct HubFile {
  std::string name;  // with folders
  std::string blob;  // the hash that is its ETag, and its name in the cache
  std::uint64_t size = 0;
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files = {};

  const HubFile* find(std::string_view name) const noexcept;
  // The names of the files that are the checkpoint, as select_names(); those that lead to others
  // come first. Fails likewise.
  Result<std::vector<std::string>> checkpoint() const;
};

// Fails with corrupt for anything else, and for names that lead out of a folder.
Result<HubListing> read_hub_listing(std::string_view json);

}  // namespace weightmap::sets
