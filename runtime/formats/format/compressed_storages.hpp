// Storages whose bytes are not in the file as they are: where they will lie once they are copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

// A storage that the first file holds deflated. Whoever maps the files inflates it into memory, to
// the position that the catalog has for it.
struct CompressedStorage {
  std::string record = {};    // its name
  std::uint64_t file_offset;  // of the compressed bytes
  std::uint64_t stored_bytes = 0;
  std::uint64_t position;
  std::uint64_t nbytes;
  std::uint32_t crc32 = 0;  // 0: the writer did not compute it
  // Set instead of `record`, `stored_bytes` and `crc32` if a pickle spells the bytes as text: what
  // the value tree made of it.
  std::span<const std::byte> decoded = {};

  // "record "data/1" is compressed".
  std::string description() const;
  // How to get rid of that.
  const char* advice() const noexcept;
};

// Gives each deflated extent a position from `base` on, as its payload offset. Fails with corrupt
// for what deflate cannot reach, with limit_exceeded beyond Limits::copied_bytes and copied_ratio.
// Allocates nothing for the inflated bytes.
Result<std::vector<CompressedStorage>> place_compressed(const zip::Directory& directory,
                                                        std::span<zip::StorageExtent> extents,
                                                        const Limits& limits, std::uint64_t base);

}  // namespace weightmap::format
