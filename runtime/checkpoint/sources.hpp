// The files of a checkpoint in one address space: each begins at a base, which is a multiple of 2
// MiB, so that huge pages can be mapped; the first base is 0. The gap between two files belongs to
// neither. A position is the place of a byte in Checkpoint::mapping().
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mmap/mapped_file.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/part.hpp"
#include "runtime/checkpoint/arriving_file.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct SourceFile {
  os::File file;                              // with Protection::reflink, the reflink
  SourceInfo info;                            // of the opened file, even if `file` is a reflink
  std::string shown_name;                     // the given path, escaped, for later errors
  std::shared_ptr<ArrivingFile> remote = {};  // what `file` reads through; nullptr: it is local
  std::string name_beside = {};  // of a remote file: in the folder of the first one, or below
  // What is a checkpoint, if it is not the whole file; and its name in the archive that the file
  // is.
  std::optional<ByteRange> member = {};
  std::string member_name = {};

  std::uint64_t base() const noexcept { return info.mapping_offset; }
  // True for sealed memory behind the files with inflated storages. It acts as a file for mapping,
  // reading and page queries, but was not opened.
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
  // By which the content is opened again.
  std::filesystem::path content_path() const {
    return member ? std::filesystem::path(info.path.native() + "//" + member_name) : info.path;
  }
  // What is parsed; `part` is filled in for a member.
  const bytes::ByteSource& content(std::optional<bytes::Part>& part) const {
    if (!member) return file;
    return part.emplace(file, member->offset, member->length);
  }
  // Of an error about what is parsed, whose offset is the one in it.
  Error about_content(Error error) const {
    if (member && error.file_offset != Error::no_offset) error.file_offset += member->offset;
    return about(std::move(error));
  }
  // By which the format is told. No file has the name of a member, as nothing lies below a file.
  std::filesystem::path content_name() const {
    return member ? info.path / std::filesystem::path(member_name).filename() : info.path;
  }
};

// Filled in by the open, and read-only afterwards.
class Sources {
 public:
  // Adds one more file. Fails with limit_exceeded if the bases do not fit 63 bits.
  Result<void> add(SourceFile file);

  std::size_t size() const noexcept { return files_.size(); }
  const SourceFile& operator[](std::size_t index) const noexcept { return files_[index]; }
  const SourceFile& front() const noexcept { return files_.front(); }
  auto begin() const noexcept { return files_.begin(); }
  auto end() const noexcept { return files_.end(); }
  // Without copies.
  std::span<const SourceFile> opened() const noexcept {
    return std::span(files_).first(files_.size() - (has_copies() ? 1 : 0));
  }

  std::uint64_t bytes() const noexcept;  // of all files, without copies
  // The base of the next file, and that of the copies, which come last.
  std::uint64_t next_base() const noexcept;
  std::uint64_t copies_base() const noexcept {
    return has_copies() ? files_.back().base() : next_base();
  }
  bool has_copies() const noexcept { return files_.back().is_copy(); }
  std::vector<ByteRange> ranges() const;
  std::vector<mmap::PlacedFile> placed() const;

  // Returns the file that contains a position, or behind whose end it lies.
  const SourceFile& at(std::uint64_t position) const noexcept;
  // True if a range lies entirely in one of the files.
  bool contain(std::uint64_t position, std::uint64_t length) const noexcept;

  // Fills `out` by pread. Errors name the file and its offset. Precondition: the range lies in one
  // file.
  Result<void> read(std::uint64_t position, std::span<std::byte> out) const;
  // Translates an error about a position into one about the file and the offset in it.
  Error about_position(Error error) const;

 private:
  std::vector<SourceFile> files_;  // at least one after the open; by base
};

}  // namespace weightmap
