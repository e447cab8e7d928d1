// The pages of a mapping that this process has touched, as far as it knows: the system may have
// taken some back meanwhile, which then cost a fault each.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {

// A bit for each page of one range of the mapping. Any thread may call it, also while others do.
class TouchedPages {
 public:
  explicit TouchedPages(ByteRange range)
      : page_bytes_(os::page_bytes()),
        first_(range.offset / page_bytes_),
        words_((range.offset + range.length + page_bytes_ - 1) / page_bytes_ / 64 - first_ / 64 +
               1) {}

  // Appends the numbers of the pages of a part of the range that were not touched before, and notes
  // that they are now. A page's number is its place in the mapping by os::page_bytes().
  void touch(ByteRange part, std::vector<std::uint64_t>& new_pages) {
    const std::uint64_t last = (part.offset + part.length - 1) / page_bytes_;
    for (std::uint64_t page = part.offset / page_bytes_; page <= last; ++page) {
      std::atomic<std::uint64_t>& word = words_[page / 64 - first_ / 64];
      const std::uint64_t bit = std::uint64_t{1} << page % 64;
      if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
      if ((word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) new_pages.push_back(page);
    }
  }
  void forget() noexcept {
    for (std::atomic<std::uint64_t>& word : words_) word.store(0, std::memory_order_relaxed);
  }

 private:
  std::uint64_t page_bytes_;
  std::uint64_t first_;  // page
  std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace weightmap::mmap
