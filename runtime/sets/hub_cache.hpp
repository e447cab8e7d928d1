// Models in the local cache of huggingface_hub, without the network. The layout is documented at
// huggingface.co/docs/huggingface_hub/guides/manage-cache:
//
//   hub/models--ORG--NAME/refs/main                    a commit, as text
//                        /snapshots/COMMIT/FILE        a link to ../../blobs/HASH
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::sets {

struct HubSnapshot {
  std::filesystem::path folder;    // of the files of one commit
  std::filesystem::path ref_file;  // that names the commit; empty: the commit was asked for
  std::string commit;
};

// The snapshot of "org/name" or "org/name@revision": a branch, a tag or a whole commit; without one
// it is main. The cache is where HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME or XDG_CACHE_HOME
// say, else ~/.cache/huggingface/hub. nullopt for what is no such name,
// and where a folder of the first part's name is here; fails with not_found,
// saying what is not there, else. Reads the environment (getenv).
Result<std::optional<HubSnapshot>> find_in_hub_cache(std::string_view name);

// Whether the snapshot is still what its name means.
bool is_current(const HubSnapshot& snapshot);

// The link in a snapshot that leads to this blob, as people know the file; the path itself if it is
// no blob of such a cache, or none leads there.
std::filesystem::path snapshot_path(const std::filesystem::path& blob);

}  // namespace weightmap::sets
