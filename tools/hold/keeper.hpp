// All files that are kept in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tools/hold/held_file.hpp"

namespace weightmap::cli::hold {

// For one thread. Files are known by their absolute paths.
class Keeper {
 public:
  Keeper(bool wants_lock, HeldFile::Say say)
      : wants_lock_(wants_lock), say_([this, say = std::move(say)](const std::string& what) {
          ++changes_;
          say(what);
        }) {}
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Begins to hold a file, in the background; one that is held already stays as it is. Answers it
  // as HeldFile::describe() does. Fails if it cannot be opened.
  Result<Json> hold(const std::filesystem::path& path);
  // Fails with invalid_argument if it is not held.
  Result<void> release(const std::filesystem::path& path);

  // Grows with each file that is taken or released, and with each sentence that is said.
  std::uint64_t changes() const noexcept { return changes_; }
  bool is_warming() const noexcept;
  bool is_reloading() const noexcept;
  void advance();
  // As HeldFile::look() does.
  void look(bool counts);

  // {"pid", "files": [...], "file_bytes", "resident_bytes"}
  Json describe() const;
  // A line for people: "2 files, 3.1 GiB".
  std::string summary() const;

 private:
  std::vector<HeldFile>::iterator find(const std::filesystem::path& path);

  bool wants_lock_;
  std::uint64_t changes_ = 0;
  HeldFile::Say say_;
  std::vector<HeldFile> files_;
};

}  // namespace weightmap::cli::hold
