// A range of a file, or of the one space in which the files of a checkpoint lie.
#pragma once

#include <cstdint>

namespace weightmap {

struct ByteRange {
  std::uint64_t offset;
  std::uint64_t length;
  friend bool operator==(const ByteRange&, const ByteRange&) noexcept = default;
};

}  // namespace weightmap
