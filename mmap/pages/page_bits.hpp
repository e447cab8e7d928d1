// A bit for each page of a file or a mapping.
#pragma once

#include <cstdint>
#include <vector>

namespace weightmap::mmap {

// Filled once from the front, then queried: interleaved counts make every query constant-time. 256
// KiB of memory for each 4 GiB.
class PageBits {
 public:
  // The range begins with a page and may end within one.
  explicit PageBits(std::uint64_t range_bytes);

  // Adds the next `pages`. Precondition: the range has as many left.
  void append(std::uint64_t pages, bool is_set);
  // The number of added pages. Precondition of the functions below: all pages were added.
  std::uint64_t size() const noexcept { return page_count_; }

  // Returns how many bytes of [offset, offset + length), cut at the end of the range, lie in pages
  // whose bit is set. A page at the border counts with its part of the range.
  std::uint64_t set_bytes(std::uint64_t offset, std::uint64_t length) const noexcept;

  std::uint64_t range_bytes() const noexcept { return range_bytes_; }
  std::uint64_t page_bytes() const noexcept { return page_bytes_; }

 private:
  bool is_set(std::uint64_t page) const noexcept;
  std::uint64_t set_before(std::uint64_t page) const noexcept;  // pages

  std::uint64_t range_bytes_;
  std::uint64_t page_bytes_;
  std::uint64_t page_count_ = 0;
  std::vector<std::uint64_t> words_;   // a bit for each page
  std::vector<std::uint64_t> before_;  // set bits before each word
};

}  // namespace weightmap::mmap
