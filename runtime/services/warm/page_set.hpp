// A set of page numbers below a bound, as bits. A range costs one word operation per 64 pages.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace weightmap {

class PageSet {
 public:
  explicit PageSet(std::uint64_t bound) : words_((bound + 63) / 64) {}

  // Adds [first, end), with end not above the bound, as in the functions below.
  void add(std::uint64_t first, std::uint64_t end) {
    while (first < end) {
      const std::uint64_t stop = std::min(end, (first / 64 + 1) * 64);
      words_[first / 64] |= mask(first % 64, stop - first);
      first = stop;
    }
  }

  // Return the first page in [first, end) that is in the set, or not in it; `end` if there is none.
  std::uint64_t find_in(std::uint64_t first, std::uint64_t end) const {
    return find(first, end, 0);
  }
  std::uint64_t find_out(std::uint64_t first, std::uint64_t end) const {
    return find(first, end, ~std::uint64_t{0});
  }

 private:
  static std::uint64_t mask(std::uint64_t from, std::uint64_t count) noexcept {
    return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << from;
  }

  // `flip` inverts the words so that the wanted pages are ones.
  std::uint64_t find(std::uint64_t first, std::uint64_t end, std::uint64_t flip) const {
    while (first < end) {
      const std::uint64_t found = (words_[first / 64] ^ flip) >> first % 64;
      if (found != 0)
        return std::min(end, first + static_cast<std::uint64_t>(std::countr_zero(found)));
      first = (first / 64 + 1) * 64;
    }
    return end;
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace weightmap
