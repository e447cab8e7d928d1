// Copies of what a URL names, in shared memory: one of each version, and a name for the present
// one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// One question to the store, and what came of it.
struct Round {
  std::string version;      // that the store has; empty: unknown
  bool is_refused = false;  // it was before, and is the one that the store still has
  bool is_fetched = false;
  std::string how;       // it was fetched and compared; or empty
  Json files = nullptr;  // of a model: [{"file", "bytes", "tag"}, ...]
  Error error = {};      // unless its message is empty
};

// What will not pass before the store has another version.
bool is_of_the_content(ErrorCode code) noexcept;

// Opens the source of a URL. Any thread may call it.
using OpenSource = std::function<Result<std::unique_ptr<RangeSource>>(const std::string& url)>;

// Functions are called by one thread at a time.
class Copies {
 public:
  virtual ~Copies() = default;

  virtual std::filesystem::path path() const = 0;  // "/dev/shm/NAME"
  // The version that has NAME, as round() tells them; empty: none.
  virtual std::string published() const = 0;
  // What the store calls a version: "5c3b12f0-1a".
  virtual std::string shown(const std::string& version) const = 0;
  // Asks the store whether it can be followed. Fails as the store does, and with unsupported if it
  // names no version.
  virtual Result<void> ask(const std::string& url, const OpenSource& open) const = 0;
  // Asks the store for the version, and fetches it and gives it NAME unless it is `published` or
  // `refused`.
  virtual Round round(const std::string& url, const OpenSource& open, const std::string& published,
                      const std::string& refused) = 0;
  // Removes NAME and what it stands for.
  virtual void remove() = 0;
};

}  // namespace weightmap::cli::hold
