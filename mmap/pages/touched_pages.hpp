// The pages of a mapping that this process has touched, and the large pages of which all is cached,
// as far as it knows: the system may have taken some back meanwhile, which then cost a fault each.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {

// Of one range of the mapping. Any thread may call it, also while others do. A page's number is its
// place in the mapping by os::page_bytes(), that of a large page by os::large_page.
class TouchedPages {
 public:
  explicit TouchedPages(ByteRange range)
      : page_bytes_(os::page_bytes()),
        pages_(range, page_bytes_),
        asked_(range, os::large_page),
        full_(range, os::large_page) {}

  // Appends the pages of a part that were not touched.
  void add_untouched(ByteRange part, std::vector<std::uint64_t>& pages) const {
    for (std::uint64_t page = first(part); page <= last(part); ++page)
      if (!pages_.has(page)) pages.push_back(page);
  }
  // Of these, those that may not be cached.
  void add_uncached(ByteRange part, std::vector<std::uint64_t>& pages) const {
    const std::uint64_t last_large = (part.offset + part.length - 1) / os::large_page;
    for (std::uint64_t at = part.offset / os::large_page; at <= last_large; ++at)
      if (!full_.has(at)) return add_untouched(part, pages);
  }
  void touch(ByteRange part) noexcept {
    for (std::uint64_t page = first(part); page <= last(part); ++page) pages_.add(page);
  }
  // Whether all of a large page is cached, as is_cached() says when it is first asked for.
  template <class IsCached>
  bool is_full(std::uint64_t large_page, const IsCached& is_cached) {
    if (asked_.add(large_page) && is_cached(large_page)) full_.add(large_page);
    return full_.has(large_page);
  }
  void forget() noexcept {
    pages_.clear();
    asked_.clear();
    full_.clear();
  }

 private:
  class Bits {
   public:
    Bits(ByteRange range, std::uint64_t unit)
        : first_word_(range.offset / unit / 64),
          words_((range.offset + range.length) / unit / 64 - first_word_ + 1) {}
    bool has(std::uint64_t number) const noexcept {
      return (words_[number / 64 - first_word_].load(std::memory_order_relaxed) & bit(number)) != 0;
    }
    // Returns false if it was there.
    bool add(std::uint64_t number) noexcept {
      return !has(number) &&
             (words_[number / 64 - first_word_].fetch_or(bit(number), std::memory_order_relaxed) &
              bit(number)) == 0;
    }
    void clear() noexcept {
      for (std::atomic<std::uint64_t>& word : words_) word.store(0, std::memory_order_relaxed);
    }

   private:
    static constexpr std::uint64_t bit(std::uint64_t number) noexcept {
      return std::uint64_t{1} << number % 64;
    }
    std::uint64_t first_word_;
    std::vector<std::atomic<std::uint64_t>> words_;
  };

  std::uint64_t first(ByteRange part) const noexcept { return part.offset / page_bytes_; }
  std::uint64_t last(ByteRange part) const noexcept {
    return (part.offset + part.length - 1) / page_bytes_;
  }

  std::uint64_t page_bytes_;
  Bits pages_;
  Bits asked_;  // large pages
  Bits full_;   // large pages
};

}  // namespace weightmap::mmap
