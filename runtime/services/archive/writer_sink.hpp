// Destinations of an archive: a new file, or a function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weightmap/archive.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {

class WriterSink {
 public:
  static std::unique_ptr<WriterSink> to(NewFile file);
  static std::unique_ptr<WriterSink> to(ArchiveWriter::Write write);

  virtual ~WriterSink() = default;
  // Reserves space; `bytes` is the size of the whole archive.
  virtual Result<void> reserve(std::uint64_t bytes) = 0;
  virtual Result<void> write(std::span<const std::byte> content) = 0;
  // Writes zeros, as a hole where the destination supports it.
  virtual Result<void> skip(std::uint64_t bytes) = 0;
  // Finishes the destination after everything was written; `end` is its last bytes.
  virtual Result<void> commit(std::span<const std::byte> end) = 0;
};

}  // namespace weightmap
