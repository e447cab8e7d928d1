// Where an archive is written to: a new file, a descriptor, or a function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weightmap/archive_writer.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {

class WriterSink {
 public:
  static std::unique_ptr<WriterSink> to(NewFile file);
  static std::unique_ptr<WriterSink> to_descriptor(int descriptor);
  static std::unique_ptr<WriterSink> to(ArchiveWriter::Write write);

  virtual ~WriterSink() = default;
  // Of what will be written in all.
  virtual Result<void> reserve(std::uint64_t bytes) = 0;
  virtual Result<void> write(std::span<const std::byte> content) = 0;
  // The next bytes are zeros, and take no space where that can be.
  virtual Result<void> skip(std::uint64_t bytes) = 0;
  // Everything was written; `end` are its last bytes.
  virtual Result<void> commit(std::span<const std::byte> end) = 0;
};

}  // namespace weightmap
