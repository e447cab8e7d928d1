// What only some file systems have: reflinks, extents that can be counted, extended attributes,
// holes that can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Makes a copy of a file that shares its blocks, and that other processes cannot change or
// truncate: a reflink in the file's directory. It has no name and disappears with its last
// descriptor and mapping. Fails with unsupported if the file system has no reflinks, with io if the
// system refuses otherwise or the file was written to since it was opened.
Result<File> make_reflink(const File& source);

// Counts the extents of a file. nullopt if the file system does not report them (tmpfs, NFS). Dirty
// pages may count differently later. Reads none of the file's content.
std::optional<std::uint64_t> extents_of(const File& file) noexcept;

// Texts that the file system keeps with a file (extended attributes). Names begin with "user.".
// Returns false if the file system or the system refuses.
bool set_attribute(int descriptor, const std::string& name, const std::string& text) noexcept;

// Returns nullopt if there is no such file or attribute, or none that could be read.
std::optional<std::string> attribute_of(const std::filesystem::path& path, const std::string& name);

struct Holes {
  std::uint64_t bytes = 0;  // in blocks that lie fully in the range and are not allocated
  // All of these blocks are so, or the last one of the file: the range was never written, unless it
  // is all zeros, which copies may leave out.
  bool is_unwritten = false;
};
// None if the file system does not report them. Works for any open file.
Holes find_holes(const File& file, std::uint64_t offset, std::uint64_t length) noexcept;

}  // namespace weightmap::os
