// A folder of snapshots: one for each command, DIR/KEY/, with manifest.json, plan.json (what to
// read ahead for a restore) and image/ (criu's files).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/run/start_plan.hpp"
#include "tools/snapshot/manifest.hpp"
#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

class SnapshotFolder {
 public:
  // Opens a folder of this user's own. Fails with io if it is not there, with invalid_argument if
  // it is another user's, or if others may write to it. `makes`: makes it if it is not there, for
  // this user alone.
  static Result<SnapshotFolder> open(const std::filesystem::path& path, bool makes);

  const std::filesystem::path& path() const noexcept { return path_; }
  // Where each start has files of its own, in a namespace of mounts of its own (supervisor.hpp).
  std::filesystem::path meeting_point() const { return path_ / "here"; }
  std::filesystem::path image_of(const std::string& key) const { return path_ / key / "image"; }

  // The keys of the snapshots, sorted.
  std::vector<std::string> keys() const;
  // Fails with not_found if there is none of this key, as parse_manifest() does, and with
  // invalid_argument if it is not this user's own.
  Result<Manifest> manifest(const std::string& key) const;
  // What to read ahead; empty if that is not known.
  start::StartPlan plan(const std::string& key) const;

  // An empty folder for an image, and the lock under which one start at a time fills it.
  struct Unfinished {
    std::filesystem::path image;
    Descriptor lock;
  };
  // Makes such a folder, in place of what an earlier start of this command left half-made. Fails
  // with cancelled while another start makes a snapshot of this command.
  Result<Unfinished> begin(const std::string& key) const;
  // Waits until no other start restores this image, and keeps others from it as long as the
  // descriptor is open: what criu makes while it restores, has the same names each time. None:
  // without a lock.
  Descriptor lock_for_restore(const std::string& key) const;
  // Gives the image in it its manifest and its name, in place of an older one.
  Result<void> commit(const Manifest& manifest, const start::StartPlan& plan) const;
  // Removes what begin() made.
  void discard(const std::string& key) const;
  // Removes a snapshot, and what is left half-made of it.
  void remove(const std::string& key) const;

 private:
  explicit SnapshotFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path unfinished(const std::string& key) const;

  std::filesystem::path path_;  // absolute
};

}  // namespace weightmap::cli::snapshot
