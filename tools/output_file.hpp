// A file that appears under its name only once it is complete.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli {

class OutputFile {
 public:
  // Writes to a new file beside `path`, which commit() renames over it; a path that is not a
  // regular file (a device, a pipe) is written directly. Refuses to replace `input`, whatever it is
  // called.
  static Result<OutputFile> create(const std::string& path, const std::string& input);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Removes what was not committed.
  ~OutputFile();

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> commit();

 private:
  OutputFile(std::string path, std::string temporary, int descriptor) noexcept;
  Error fault(const char* what) const;

  std::string path_;
  std::string temporary_;  // empty when written directly
  int descriptor_;
};

}  // namespace weightmap::cli
