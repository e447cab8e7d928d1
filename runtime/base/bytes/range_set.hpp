// A set of bytes of a file, as disjoint ranges.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"

namespace weightmap::bytes {

// Precondition of all ranges: offset + length fits 64 bits. Not thread-safe.
class RangeSet {
 public:
  void add(ByteRange range);
  void remove(ByteRange range);
  bool contains(ByteRange range) const { return missing(range).empty(); }
  // True if a byte of `range` is in the set.
  bool intersects(ByteRange range) const noexcept;
  // The parts of `range` that are not in the set, by offset.
  std::vector<ByteRange> missing(ByteRange range) const;
  // By offset; no two touch.
  std::vector<ByteRange> ranges() const;
  // The end of the range that begins at 0; 0 if there is none.
  std::uint64_t end_of_first() const noexcept;

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // of each range, by its begin
};

}  // namespace weightmap::bytes
