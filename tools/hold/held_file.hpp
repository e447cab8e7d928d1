// A file that is kept in memory, whatever takes its place.
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
  // `say` gets a sentence about what has happened, for people.
  using Say = std::function<void(const std::string&)>;
  static Result<HeldFile> open(std::filesystem::path path, bool wants_lock, Say say);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t file_bytes() const noexcept { return current_->checkpoint().info().file_bytes; }
  // Whether something goes on in the background, so that advance() is wanted soon.
  bool is_warming() const noexcept { return current_->is_warming() || is_reloading(); }
  bool is_reloading() const noexcept { return next_ != nullptr; }

  // Takes what has been done in the background. A new version that is in memory takes the place of
  // the old one, which is released then.
  void advance();
  // Looks whether the file was replaced, and begins to bring the new one in; else touches what is
  // not locked. With `counts`, which takes a look at each page, counts what was evicted first.
  void look(bool counts);

  // {"file", "state", "file_bytes", "resident_bytes", ...}; docs/cli.md has them all.
  Json describe() const;

 private:
  HeldFile(std::filesystem::path path, std::unique_ptr<HeldCopy> copy, bool wants_lock, Say say);
  Result<Generation> found_generation() const;
  void begin_reload(const Generation& found);
  void count_evicted();
  void finish_reload();
  const std::string& problem() const noexcept {
    return file_problem_.empty() ? current_->problem() : file_problem_;
  }
  // Says what has changed since it was called before.
  void tell();

  std::filesystem::path path_;
  bool wants_lock_;
  Say say_;
  std::unique_ptr<HeldCopy> current_;
  std::unique_ptr<HeldCopy> next_;     // on its way in; nullptr if there is none
  std::optional<Generation> refused_;  // a version that cannot be held
  std::string file_problem_;           // what is wrong with what the path means now; or empty
  std::string told_problem_;
  bool was_in_memory_ = false;  // the current one, once
  std::uint64_t reloads_ = 0;
  std::uint64_t past_elections_ = 0;            // of versions that were released
  std::optional<std::uint64_t> evicted_bytes_;  // nullopt: was not counted
};

}  // namespace weightmap::cli::hold
