// A remote file or model as a copy in shared memory, /dev/shm/NAME, which follows the store.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "tools/hold/copies.hpp"
#include "tools/hold/wanted_digests.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::cli::hold {

struct RemoteFile {
  std::string url;
  std::string name;  // in /dev/shm; empty: that of the URL's file, or of the model's folder
  RemoteOptions options;
  WantedDigests wanted;
};

// Single-threaded; a thread of its own talks to the store.
class RemoteCopy {
 public:
  using Say = std::function<void(const std::string&)>;
  // Asks no store. Fails if NAME or the URL cannot be used.
  static Result<std::unique_ptr<RemoteCopy>> open(RemoteFile file, Say say);
  ~RemoteCopy();  // cancels what is on its way; the copy stays
  RemoteCopy(const RemoteCopy&) = delete;
  RemoteCopy& operator=(const RemoteCopy&) = delete;

  // What the URL names, without its secrets: two of one identity are one copy.
  static Result<std::string> identity_of(const std::string& url, const RemoteOptions& options);
  const std::string& identity() const noexcept { return identity_; }
  // Asks by this URL of the same identity from the next round on, and soon.
  void renew(std::string url);
  std::filesystem::path path() const { return copies_->path(); }
  bool is_there() const noexcept { return !published_.empty(); }
  bool is_busy() const noexcept { return round_.valid(); }

  // Asks the store, and waits for the answer. Fails as Copies::ask() does.
  Result<void> ask() const { return copies_->ask(file_.url, opener()); }
  // Why the last round brought nothing, if nothing is held. Not that the file changed meanwhile,
  // which the next round may do better.
  std::optional<Error> failure_of_all() const;
  // Takes the result of background work.
  void advance();
  // Says what failed since the last call.
  void tell();
  // Asks the store in the background, and fetches a new version, unless that is going on. After
  // failures it waits twice as many calls each time, up to 64.
  void look();
  // Removes the copy.
  void remove();

  // Returns {"url", "version", "versions_fetched", "url_problem"}, and "files" of a model.
  Json describe() const;

 private:
  RemoteCopy(RemoteFile file, std::string shown, std::string identity,
             std::unique_ptr<Copies> copies, Say say);
  OpenSource opener() const;
  Round try_round();  // in the background, of a state that does not change meanwhile

  RemoteFile file_;
  std::string next_url_;     // from the next round on; or empty
  const std::string shown_;  // the URL without its secrets and its query
  const std::string identity_;
  const std::unique_ptr<Copies> copies_;
  Say say_;
  std::string published_;  // the version that has NAME; empty: none
  std::string refused_;    // one that is no checkpoint, or corrupt
  Error problem_ = {};     // of the last round; or without a message
  unsigned failures_ = 0;  // since the last good round
  unsigned looks_to_wait_ = 0;
  std::string told_problem_;
  std::uint64_t fetched_ = 0;
  Json files_ = nullptr;  // of the version of a model
  std::atomic<bool> stops_ = false;
  std::future<Round> round_;
};

}  // namespace weightmap::cli::hold
