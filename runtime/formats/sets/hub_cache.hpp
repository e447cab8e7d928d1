// Finds models in the local cache of huggingface_hub, without the network. The layout is documented
// at huggingface.co/docs/huggingface_hub/guides/manage-cache:
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

// "org/name", "org/name@revision" or, with a file of it, "org/name@revision/model.gguf". A slash in
// a revision is then written %2F.
struct HubName {
  std::string model;              // "org/name"
  std::string revision = "main";  // a branch, a tag or a commit
  std::string file = {};          // empty: the model's checkpoint

  // nullopt for any other text.
  static std::optional<HubName> parse(std::string_view text);
};

// True for what can be the name of a commit, and so of a folder.
bool is_hub_commit(std::string_view text) noexcept;

// The folder of huggingface_hub's files (~/.cache/huggingface), and that of its cache; empty if no
// variable tells. Read the environment (getenv).
std::filesystem::path hub_home();
std::filesystem::path hub_cache();
// "models--org--name", in the cache.
std::string hub_folder_name(std::string_view model);

struct HubSnapshot {
  std::filesystem::path folder;    // with the files of one commit
  std::filesystem::path ref_file;  // has the name of the commit; empty if a commit was given
  std::string commit;
};

// Returns the snapshot of "org/name" or "org/name@revision": a branch, a tag or a whole commit;
// main without a revision. HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME or XDG_CACHE_HOME determine
// the cache, otherwise it is ~/.cache/huggingface/hub. Returns nullopt for any other name, and if a
// local folder has the name of the first part; fails with not_found, naming what is missing, if the
// cache has no such snapshot. Reads the environment (getenv).
Result<std::optional<HubSnapshot>> find_in_hub_cache(std::string_view name);

// True if the name still refers to this snapshot.
bool is_current(const HubSnapshot& snapshot);

// Returns the link to this blob in a snapshot, which is the file's familiar name; the path itself
// if it is not a blob of such a cache, or has no link.
std::filesystem::path snapshot_path(const std::filesystem::path& blob);

}  // namespace weightmap::sets
