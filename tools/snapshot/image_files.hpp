// The files of an image: their checksums, against damage, and whose they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/system/file/file.hpp"
#include "tools/snapshot/manifest.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

std::uint64_t checksum_of(std::string_view text) noexcept;
std::string hexadecimal(std::uint64_t number);

// Returns the files of a folder with their checksums. Fails with io.
Result<std::vector<ImageFile>> checksum_files(const std::filesystem::path& folder);

// Compares an image with what was recorded of it, in two parts, a few reads at a time.
class ImageCheck {
 public:
  // Opens all files. Fails with corrupt, naming the file, if one has another size, with io if it
  // cannot be opened, and with invalid_argument if it is another user's, or others may write to it.
  static Result<ImageCheck> open(const std::filesystem::path& folder,
                                 const std::vector<ImageFile>& expected);

  // Fail with corrupt, naming the file, if one differs, with io if it cannot be read.
  // The files that say what there is to restore.
  Result<void> compare_description() const { return compare(description_); }
  // The memory of the processes, which is nearly all of an image, and which criu only copies.
  Result<void> compare_pages() const { return compare(pages_); }

 private:
  struct OpenFile {
    ImageFile expected;
    os::File content;
  };
  explicit ImageCheck(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Result<void> compare(const std::vector<OpenFile>& files) const;

  std::filesystem::path folder_;
  std::vector<OpenFile> description_, pages_;
};

// Compares all of these files; fails as ImageCheck does.
Result<void> verify_files(const std::filesystem::path& folder,
                          const std::vector<ImageFile>& expected);

// Fails with invalid_argument unless the effective user owns the open file or folder, and no other
// user may write to it; with io if the system does not tell. Restoring an image gives it this
// user's rights, or those of root, so one that another user can have written is never looked into.
Result<void> expect_own(int descriptor);

// Has this user alone read and write the files of a folder.
Result<void> make_private(const std::filesystem::path& folder);

}  // namespace weightmap::cli::snapshot
