// All files that the daemon keeps in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "tools/hold/held_file.hpp"
#include "tools/hold/remote_copy.hpp"

namespace weightmap::cli::hold {

// Single-threaded. Files are identified by their absolute paths.
class Keeper {
 public:
  // `remote`: how each store is asked.
  Keeper(bool wants_lock, RemoteOptions remote, WantedDigests wanted, HeldFile::Say say)
      : wants_lock_(wants_lock),
        remote_(std::move(remote)),
        wanted_(std::move(wanted)),
        say_([this, say = std::move(say)](const std::string& what) {
          ++changes_;
          say(what);
        }) {}
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Starts to hold a file, in the background; one that is held already is unaffected. Returns its
  // HeldFile::describe(). Fails if it cannot be opened.
  Result<Json> hold(const std::filesystem::path& path);
  // The same of a remote file, whose copy, /dev/shm/NAME, is held once it is there. NAME is the
  // URL's file name unless given. Fails if NAME or the URL cannot be used; with `waits`, which is
  // for the start of the daemon, also as the store does, unless a copy is there.
  Result<Json> hold_url(const std::string& url, const std::string& name, bool waits);
  // Of a remote file it also removes the copy. Fails with invalid_argument if the file is not held.
  Result<void> release(const std::filesystem::path& path);
  // The path of the copy; fails with invalid_argument if there is none.
  Result<std::filesystem::path> path_of_url(const std::string& url) const;

  // All that is held by now is of the start; what a client adds later is not.
  void note_start();
  // Of what is of the start: fails as the first URL did of which nothing is there, or for the first
  // file that has another SHA-256 than it should have, if there is one.
  Result<void> check_start() const;
  // Incremented for each file that is added or released, and for each reported sentence.
  std::uint64_t changes() const noexcept { return changes_; }
  bool is_warming() const noexcept;
  bool is_reloading() const noexcept;
  void advance();
  // Says what is new since the last call.
  void tell();
  // Calls HeldFile::look() for all files.
  void look(bool counts);

  // Returns {"pid", "files": [...], "file_bytes", "resident_bytes"}.
  Json describe() const;
  // Returns a line for the user: "2 files, 3.1 GiB".
  std::string summary() const;

 private:
  std::vector<HeldFile>::iterator find(const std::filesystem::path& path);
  Result<Json> hold(const std::filesystem::path& path, const WantedDigests& wanted);
  void hold_copies();
  Json describe(const RemoteCopy& copy) const;

  bool wants_lock_;
  RemoteOptions remote_;
  const WantedDigests wanted_;
  std::uint64_t changes_ = 0;
  HeldFile::Say say_;
  std::vector<HeldFile> files_;
  std::vector<std::unique_ptr<RemoteCopy>> copies_;
  std::set<std::filesystem::path> of_start_;
};

}  // namespace weightmap::cli::hold
