// What servers read beside the weights of a model, which its next version has, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

class FilesBeside {
 public:
  // Fails with io if the folder cannot be read.
  static Result<FilesBeside> list(const std::filesystem::path& folder);

  // Fails with io, naming the file.
  Result<void> copy_to(const std::filesystem::path& folder) const;
  // Fails with io if the name is one of another folder by now, or if one of these files was
  // changed, removed or added.
  Result<void> check_unchanged() const;

 private:
  struct File {
    std::string name;
    Generation generation;
    bool operator==(const File& other) const noexcept {
      return name == other.name && generation.same_content(other.generation);
    }
  };

  std::filesystem::path folder_;
  std::uint64_t device_ = 0;  // of the folder
  std::uint64_t inode_ = 0;
  std::vector<File> files_;  // by name
};

}  // namespace weightmap::delta
