// A range of a file, or of the address space that the files of a checkpoint share.
#pragma once

#include <cstdint>

namespace weightmap {

struct ByteRange {
  std::uint64_t offset;
  std::uint64_t length;
  friend bool operator==(const ByteRange&, const ByteRange&) noexcept = default;
};

}  // namespace weightmap
