// Text as JSON has it, for those who write JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightmap::json {

// The characters that have an escape of one letter, and these letters.
inline constexpr std::string_view escaped_characters = "\"\\\b\f\n\r\t/";
inline constexpr std::string_view escape_letters = "\"\\bfnrt/";

// Whether characters beyond ASCII stay as they are, or become \uNNNN, as Python's json does it.
enum class BeyondAscii : std::uint8_t { kept, escaped };

// Appends the text in quotes, with the shortest escapes that there are. Precondition: UTF-8.
void append_string(std::string& out, std::string_view text,
                   BeyondAscii beyond_ascii = BeyondAscii::kept);

}  // namespace weightmap::json
