#include "mmap/pages/page_bits.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::uint64_t word_bits = 64;

std::uint64_t ones_of(std::uint64_t word) noexcept {
  return static_cast<std::uint64_t>(std::popcount(word));
}

}  // namespace

PageBits::PageBits(std::uint64_t range_bytes)
    : range_bytes_(range_bytes), page_bytes_(os::page_bytes()) {
  const std::uint64_t words = range_bytes / page_bytes_ / word_bits + 1;
  words_.reserve(words);
  before_.reserve(words);
}

void PageBits::append(std::uint64_t pages, bool is_set) {
  while (pages > 0) {
    const std::uint64_t at = page_count_ % word_bits;
    if (at == 0) {
      before_.push_back(words_.empty() ? 0 : before_.back() + ones_of(words_.back()));
      words_.push_back(0);
    }
    const std::uint64_t taken = std::min(pages, word_bits - at);
    if (is_set) words_.back() |= ~std::uint64_t{0} >> (word_bits - taken) << at;
    page_count_ += taken;
    pages -= taken;
  }
}

bool PageBits::is_set(std::uint64_t page) const noexcept {
  return (words_[page / word_bits] >> page % word_bits & 1) != 0;
}

std::uint64_t PageBits::set_before(std::uint64_t page) const noexcept {
  const std::uint64_t earlier_in_word = (std::uint64_t{1} << page % word_bits) - 1;
  return before_[page / word_bits] + ones_of(words_[page / word_bits] & earlier_in_word);
}

std::uint64_t PageBits::set_bytes(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (offset >= range_bytes_) return 0;
  length = std::min(length, range_bytes_ - offset);
  if (length == 0) return 0;
  const std::uint64_t end = offset + length;
  const std::uint64_t first = offset / page_bytes_;
  const std::uint64_t last = (end - 1) / page_bytes_;
  if (first == last) return is_set(first) ? length : 0;
  const std::uint64_t in_first = (first + 1) * page_bytes_ - offset;
  const std::uint64_t in_last = end - last * page_bytes_;
  return (is_set(first) ? in_first : 0) + (is_set(last) ? in_last : 0) +
         (set_before(last) - set_before(first + 1)) * page_bytes_;
}

}  // namespace weightmap::mmap
