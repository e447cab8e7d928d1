// Writes a torch archive to a file from front to back; memory does not grow with its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/zip/layout.hpp"
#include "weightmap/result.hpp"

namespace weightmap::bench {

class ArchiveWriter {
 public:
  // Takes the file over. `top` is the folder that holds all records.
  ArchiveWriter(std::FILE* file, std::string top);
  ~ArchiveWriter();
  ArchiveWriter(const ArchiveWriter&) = delete;
  ArchiveWriter& operator=(const ArchiveWriter&) = delete;

  void record(std::string_view name, std::string_view content);
  // Calls `fill` with consecutive buffers until `size` bytes are written.
  void record(std::string_view name, std::uint64_t size,
              const std::function<void(std::span<std::byte>)>& fill);
  // Writes the directory and closes the file; says whether anything failed on the way.
  Result<void> finish();

 private:
  void write(std::span<const std::byte> bytes);

  std::FILE* file_;
  std::string top_;
  zip::Layout layout_;
  std::uint64_t position_ = 0;
  std::uint64_t records_ = 0;
  std::vector<std::byte> directory_;
  std::vector<std::byte> chunk_;
  int error_ = 0;  // errno of the first failure
};

}  // namespace weightmap::bench
