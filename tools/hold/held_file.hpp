// Keeps a file in memory, following replacements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/hold/held_copy.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::hold {

class HeldFile {
 public:
  // `say` receives a sentence about each event, for the user.
  using Say = std::function<void(const std::string&)>;
  // `wanted`: as HeldCopy::open() takes it; must outlive it.
  static Result<HeldFile> open(std::filesystem::path path, bool wants_lock,
                               const WantedDigests& wanted, Say say);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t file_bytes() const noexcept { return current_->checkpoint().info().file_bytes; }
  // True if background work is in progress, so that advance() is needed soon.
  bool is_warming() const noexcept { return current_->is_warming() || is_reloading(); }
  bool is_reloading() const noexcept { return next_ != nullptr; }

  // Why it is not held, if it has another SHA-256 than it should have.
  std::optional<Error> refusal() const;

  // Takes the results of background work. A new version that is in memory replaces the old one,
  // which is then released.
  void advance();
  // Reports changes since the last call.
  void tell();
  // Checks whether the file was replaced, and starts to prefetch the new version; otherwise touches
  // pages that are not locked. With `counts`, it inspects each page for evictions first.
  void look(bool counts);

  // Returns {"file", "state", "file_bytes", "resident_bytes", ...}; docs/cli.md lists all fields.
  Json describe() const;

 private:
  HeldFile(std::filesystem::path path, std::unique_ptr<HeldCopy> copy, bool wants_lock,
           const WantedDigests& wanted, Say say);
  // Returns that of the first file that another one has replaced; nullopt: all are as they were.
  Result<std::optional<Generation>> found_generation() const;
  void begin_reload(const Generation& found);
  void count_evicted();
  void finish_reload();
  const std::string& problem() const noexcept {
    return file_problem_.empty() ? current_->problem() : file_problem_;
  }

  std::filesystem::path path_;
  bool wants_lock_;
  const WantedDigests* wanted_;
  Say say_;
  std::unique_ptr<HeldCopy> current_;
  std::unique_ptr<HeldCopy> next_;             // being prefetched; nullptr if there is none
  std::optional<Generation> next_generation_;  // of its file that was replaced
  std::optional<Generation> refused_;          // a version that cannot be held
  std::string file_problem_;  // the fault of the file that the path names now; or empty
  std::string told_problem_;
  bool is_copied_up_ = false;   // next_: the content is the same, in another file of an overlay
  bool was_in_memory_ = false;  // true once the current version was in memory
  std::uint64_t reloads_ = 0;
  std::uint64_t past_elections_ = 0;            // of released versions
  std::optional<std::uint64_t> evicted_bytes_;  // nullopt: not counted
};

}  // namespace weightmap::cli::hold
