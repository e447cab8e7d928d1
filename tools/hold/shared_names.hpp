// The names of a remote file's copies in /dev/shm: NAME is the present version, and FILE@TAG each
// version, by which others find it whose store has the same. Both are links to one copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

class SharedNames {
 public:
  // `file` is the FILE of FILE@TAG. Fails with invalid_argument if NAME cannot be used: there is
  // such a file, and it is not a version of FILE.
  static Result<SharedNames> at(std::string name, std::string file);

  std::filesystem::path path() const;  // "/dev/shm/NAME"
  // The version that has NAME, as "FILE@TAG"; empty if there is none.
  std::string published() const;
  // True if this version is there, whole, as a file of this user of this size.
  bool has(const std::string& version, std::uint64_t bytes) const;

  // Gives the version NAME, atomically, and removes the versions that have lost it. Processes that
  // have them open or mapped keep them.
  Result<void> publish(const std::string& version) const;
  // Removes NAME and its version.
  void remove() const;

 private:
  SharedNames(std::string name, std::string file)
      : name_(std::move(name)), file_(std::move(file)) {}
  void remove_unused(const std::string& but) const;

  std::string name_;
  std::string file_;
};

}  // namespace weightmap::cli::hold
