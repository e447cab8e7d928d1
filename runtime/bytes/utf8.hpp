// UTF-8, taken strictly: no surrogates, nothing longer than it needs to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightmap::bytes {

struct Character {
  std::uint32_t code;
  std::size_t length;  // in bytes; 0 where the text does not begin with UTF-8
};

// Precondition: the text is not empty.
Character first_character(std::string_view text) noexcept;

bool is_utf8(std::string_view text) noexcept;

}  // namespace weightmap::bytes
