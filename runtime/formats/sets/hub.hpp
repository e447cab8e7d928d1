// Models of the hub: in the local cache of huggingface_hub, without the network, and in its
// answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// The layout of the cache is documented at huggingface.co/docs/huggingface_hub/guides/manage-cache:
//
//   hub/models--ORG--NAME/refs/main                    a commit, as text
//                        /snapshots/COMMIT/FILE        a link to ../../blobs/HASH

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

// What the hub says of a model: its commit and its files.
//
//   {"sha": "5c3b...", "siblings": [
//     {"rfilename": "config.json", "size": 681, "blobId": "6e2c..."},
//     {"rfilename": "model.safetensors", "size": 988097824, "blobId": "c0b1...",
//      "lfs": {"sha256": "fdf7...", "size": 988097824, "pointerSize": 135}}]}

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
