// Writes text as JSON strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightmap::json {

// The characters that have a one-letter escape, and these letters.
inline constexpr std::string_view escaped_characters = "\"\\\b\f\n\r\t/";
inline constexpr std::string_view escape_letters = "\"\\bfnrt/";

// Keeps characters beyond ASCII, or writes them as \uNNNN, as Python's json does.
enum class BeyondAscii : std::uint8_t { kept, escaped };

// Appends the text in quotes, with the shortest escapes. Precondition: UTF-8.
void append_string(std::string& out, std::string_view text,
                   BeyondAscii beyond_ascii = BeyondAscii::kept);

}  // namespace weightmap::json
