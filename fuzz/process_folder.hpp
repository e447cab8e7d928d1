// A folder for the files of a target that opens some by their paths.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace weightmap::fuzz {

// Of this process, in memory if possible.
class ProcessFolder {
 public:
  ProcessFolder() { std::filesystem::create_directories(path_); }
  ProcessFolder(const ProcessFolder&) = delete;
  ~ProcessFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const noexcept { return path_; }
  void write(const std::filesystem::path& name, std::span<const std::byte> content) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }

 private:
  const std::filesystem::path path_ =
      (std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                 : std::filesystem::temp_directory_path()) /
      ("weightmap-fuzz-" + std::to_string(::getpid()));
};

}  // namespace weightmap::fuzz
