// The pieces of a file that are to be fetched, in the order in which they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/range_set.hpp"

namespace weightmap {

// Not thread-safe.
class FetchPlan {
 public:
  // What `present` lacks of a file of `size` bytes, cut at the multiples of `chunk_bytes`, in the
  // order of the file.
  FetchPlan(std::uint64_t size, const bytes::RangeSet& present, std::uint64_t chunk_bytes);

  // Moves the pieces that lie in the range, even with one byte, before all others.
  void put_first(ByteRange range);
  // Adds a range again that was fetched before; it goes before all others.
  void add_again(ByteRange range);

  // Takes the next piece out of the plan, or its front if it is longer than `longest`, but for the
  // rest of a page; nullopt if none is left.
  std::optional<ByteRange> next(std::uint64_t longest = ~std::uint64_t{0});
  // Up to `count` of the pieces that come next.
  std::vector<ByteRange> upcoming(std::size_t count) const;
  bool is_empty() const noexcept { return again_.empty() && left_ == 0; }

 private:
  std::uint64_t chunk_bytes_;
  std::vector<ByteRange> pieces_;   // by offset
  std::vector<bool> taken_;         // by piece
  std::size_t left_ = 0;            // pieces that are not taken
  std::deque<std::size_t> urgent_;  // pieces, of which some may be taken
  std::size_t next_ = 0;            // the pieces before this one are taken
  std::deque<ByteRange> again_;
};

}  // namespace weightmap
