// All files that are kept in memory.
#pragma once

#include <filesystem>
#include <vector>

#include "tools/hold/held_file.hpp"

namespace weightmap::cli::hold {

// For one thread. Files are known by their absolute paths.
class Keeper {
 public:
  Keeper(bool wants_lock, HeldFile::Say say) : wants_lock_(wants_lock), say_(std::move(say)) {}

  // Begins to hold a file, in the background; one that is held already stays as it is. Answers it
  // as HeldFile::describe() does. Fails if it cannot be opened.
  Result<Json> hold(const std::filesystem::path& path);
  // Fails with invalid_argument if it is not held.
  Result<void> release(const std::filesystem::path& path);

  bool is_warming() const noexcept;
  bool is_reloading() const noexcept;
  void advance();
  void look();

  // {"pid", "files": [...], "file_bytes", "resident_bytes"}
  Json describe() const;
  // A line for people: "2 files, 3.1 GiB".
  std::string summary() const;

 private:
  std::vector<HeldFile>::iterator find(const std::filesystem::path& path);

  bool wants_lock_;
  HeldFile::Say say_;
  std::vector<HeldFile> files_;
};

}  // namespace weightmap::cli::hold
