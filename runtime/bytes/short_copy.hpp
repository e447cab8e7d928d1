// Copies of a few bytes without a call: names and keys, of which a file has 100,000.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weightmap::bytes {

namespace detail {

// Two words of this type, which overlap where there are fewer bytes than in two.
// Precondition: sizeof(Word) <= size <= 2 * sizeof(Word).
template <class Word>
void copy_as_two(const char* from, std::size_t size, char* to) noexcept {
  Word first;
  Word last;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + size - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + size - sizeof last, &last, sizeof last);
}

}  // namespace detail

// Copies `text` to `to`, any length of it. They must not overlap.
inline void copy_short(std::string_view text, char* to) noexcept {
  struct Words {
    std::uint64_t words[2];
  };
  const std::size_t size = text.size();
  if (size > 2 * sizeof(Words)) {
    std::memcpy(to, text.data(), size);
  } else if (size >= sizeof(Words)) {
    detail::copy_as_two<Words>(text.data(), size, to);
  } else if (size >= sizeof(std::uint64_t)) {
    detail::copy_as_two<std::uint64_t>(text.data(), size, to);
  } else if (size >= sizeof(std::uint32_t)) {
    detail::copy_as_two<std::uint32_t>(text.data(), size, to);
  } else {
    for (std::size_t i = 0; i < size; ++i) to[i] = text[i];
  }
}

}  // namespace weightmap::bytes
