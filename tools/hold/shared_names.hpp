// The names of a remote file's copies in /dev/shm: NAME is the present version, and
// FILE@TAG.SOURCE each version, where SOURCE is a digest of what its URL names: a TAG says which
// version of a URL it is, and not of which. Both are links to one copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

class SharedNames {
 public:
  // Fails with invalid_argument if NAME cannot be used: there is such a file, and it is not a
  // version of this FILE of this SOURCE.
  static Result<SharedNames> at(std::string name, std::string file, std::string source);

  std::filesystem::path path() const;  // "/dev/shm/NAME"
  // Where a version is brought to before publish(), "weightmap-hold-new.NAME": of this daemon
  // alone, since other ones have other NAMEs. What a killed one has left there is removed.
  std::string new_name() const;
  // The version that has NAME, as "FILE@TAG.SOURCE"; empty if there is none.
  std::string published() const;
  // True if this version is there, whole, as a file of this user of this size.
  bool has(const std::string& version, std::uint64_t bytes) const;

  // Gives the version NAME, atomically, and removes the versions that have lost it. Processes that
  // have them open or mapped keep them. What is at new_name() becomes the version first.
  Result<void> publish(const std::string& version) const;
  // Removes what publish() of this version has left where its daemon was killed, or had no room.
  void remove_rests(const std::string& version) const;
  // Removes NAME and its version.
  void remove() const;

 private:
  SharedNames(std::string name, std::string file, std::string source)
      : name_(std::move(name)), file_(std::move(file)), source_(std::move(source)) {}
  std::vector<std::string> versions() const;
  void remove_unused(const std::string& but) const;

  std::string name_;
  std::string file_;
  std::string source_;
};

}  // namespace weightmap::cli::hold
