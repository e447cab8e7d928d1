// The files of a checkpoint behind its first one, as a shared catalog lists them:
//
//   { generation | base | length of the name }[count] | names
//
// The list may have come from anybody, so it is read from bytes that nobody else can change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap::catalog {

struct ListedFile {
  std::string name;  // beside the first file, or in a folder there
  Generation generation;
  std::uint64_t base = 0;  // where it begins in the space of all files
};

// Bytes of a whole list: 65536 files with names of more than 150 bytes.
inline constexpr std::uint64_t longest_file_list = std::uint64_t{1} << 24;

// Whether a list may be read back: of at most 65536 files, no longer than that, with names that do
// not lead away from the first file.
Result<void> check_file_list(std::span<const ListedFile> files);

std::uint64_t file_list_bytes(std::span<const ListedFile> files) noexcept;
// To so many bytes.
void write_file_list(std::span<const ListedFile> files, std::byte* to) noexcept;
// The `count` files of a list behind a first one of `first_bytes` bytes. Fails with corrupt for a
// list that check_file_list() refuses, that is not as long as it says, or whose files overlap.
Result<std::vector<ListedFile>> read_file_list(std::span<const std::byte> list, std::uint64_t count,
                                               std::uint64_t first_bytes);

}  // namespace weightmap::catalog
