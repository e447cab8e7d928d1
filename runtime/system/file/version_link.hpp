// Versions of a folder beside each other, and a symbolic link that says which one is current:
//
//   llama -> llama@5c3b12f09a4d7e88
//   llama@5c3b12f09a4d7e88/
//   llama@9f0e4411c02b6a35/        an earlier one
//
// A change of the link is one rename, so that whoever opens it finds one version as a whole.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Errors name no file; they are about the link. Single-threaded.
class VersionLink {
 public:
  // Fails with invalid_argument if something else than a symbolic link has the name.
  static Result<VersionLink> at(const std::filesystem::path& link);

  const std::filesystem::path& path() const noexcept { return path_; }
  // The folder that it leads to, without links; empty: there is none.
  std::filesystem::path current() const;
  // "NAME@VERSION" beside the link.
  std::filesystem::path folder_of(const std::string& version) const;
  // The folders beside the link that are called so, with a VERSION of 16 hexadecimal digits, or of
  // these and a number ("...88.2"), sorted. What people call so themselves is none.
  std::vector<std::filesystem::path> versions() const;
  // These, and the folders beside the link or beside current() that it led to by lead_to(), as far
  // as the file system keeps extended attributes.
  std::vector<std::filesystem::path> known() const;
  // True if it leads to one of these, or to nothing.
  bool is_of_versions() const;
  // True for the path of a file in such a NAME@VERSION, wherever that is or was.
  bool is_in_version(const std::filesystem::path& file) const;
  // The version that comes.
  static constexpr const char* incoming = "incoming";

  // Leads the link to the folder, atomically and durably: by its name if it lies beside the link,
  // else by its absolute path. Fails with io if the system refuses; then the link is as it was.
  Result<void> lead_to(const std::filesystem::path& folder) const;
  // Removes the folders of versions() but the current one and those given. Processes that have
  // their files open or mapped keep these. Stops at the first failure.
  Result<void> remove_others(const std::vector<std::filesystem::path>& kept) const;

 private:
  explicit VersionLink(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path folder() const { return path_.parent_path(); }

  std::filesystem::path path_;  // absolute, and without links but for itself
};

// The regular files of the folder and of those below it, without links.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

// Writes all regular files of the folder and of those below it, and their names, to the disk. Fails
// with io, naming the file.
Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace weightmap::os
