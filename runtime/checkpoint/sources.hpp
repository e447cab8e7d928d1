// The files of a checkpoint, in one space of positions: each begins at a base, which is a multiple
// of 2 MiB, so that large pages can be mapped; the base of the first is 0. What lies between two
// files belongs to none of them. A position is where a byte lies in Checkpoint::mapping().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mmap/mapped_file.hpp"
#include "runtime/bytes/byte_range.hpp"
#include "runtime/os/file/file.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct SourceFile {
  os::File file;           // a snapshot of what was opened, if that was asked for
  SourceInfo info;         // what was opened; the file itself where `file` is a snapshot
  std::string shown_name;  // the path as it was given, escaped, for errors made later

  std::uint64_t base() const noexcept { return info.mapping_offset; }
  // Sealed memory behind the files, where compressed storages were inflated to: a file to whatever
  // maps, reads or looks at pages, but none that was opened.
  bool is_copy() const noexcept { return info.is_copy; }
  ByteRange range() const noexcept { return {base(), file.size()}; }
  // The file in the mapping of all of them.
  mmap::MappedFile in(const mmap::Mapping& mapping) const noexcept {
    return {file, mapping, base()};
  }
  Error about(Error error) const {
    if (error.file.empty()) error.file = shown_name;
    return error;
  }
};

// Filled in by the open, and only read afterwards.
class Sources {
 public:
  // Places one more file. Fails with limit_exceeded if the bases do not fit 63 bits.
  Result<void> add(SourceFile file);

  std::size_t size() const noexcept { return files_.size(); }
  const SourceFile& operator[](std::size_t index) const noexcept { return files_[index]; }
  const SourceFile& front() const noexcept { return files_.front(); }
  auto begin() const noexcept { return files_.begin(); }
  auto end() const noexcept { return files_.end(); }

  std::uint64_t bytes() const noexcept;  // of all files, without copies
  // Where the next one that is added begins.
  std::uint64_t next_base() const noexcept;
  bool has_copies() const noexcept { return files_.back().is_copy(); }
  std::vector<ByteRange> ranges() const;
  std::vector<mmap::PlacedFile> placed() const;

  // The file that a position lies in, or behind the end of which it lies.
  const SourceFile& at(std::uint64_t position) const noexcept;
  // Whether all of a range lies in one of the files.
  bool contain(std::uint64_t position, std::uint64_t length) const noexcept;

  // Fills `out` by pread. Errors name the file, and the offset in it. Precondition: the range lies
  // in one of the files.
  Result<void> read(std::uint64_t position, std::span<std::byte> out) const;
  // An error about a position, made one about the file there and the offset in it.
  Error about_position(Error error) const;

 private:
  std::vector<SourceFile> files_;  // at least one after the open; by base
};

}  // namespace weightmap
