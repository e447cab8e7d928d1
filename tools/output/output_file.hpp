// A file that appears under its name atomically, or a device that is written directly.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "weightmap/new_file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

class OutputFile {
 public:
  // Creates a new file, to which commit() gives the name `path`; a path that is not a regular file
  // (a device, a pipe) is written directly. Refuses to replace `input`, under any name.
  static Result<OutputFile> create(const std::string& path, const std::string& input);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> commit();

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::optional<NewFile> file_;  // empty if written directly
  int device_ = -1;
};

}  // namespace weightmap::cli
