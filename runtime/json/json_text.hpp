// Text as JSON has it, for those who write JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightmap::json {

// Whether characters beyond ASCII stay as they are, or become \uNNNN, as Python's json does it.
enum class BeyondAscii : std::uint8_t { kept, escaped };

// Appends the text in quotes, with the shortest escapes that there are. Precondition: UTF-8.
void append_string(std::string& out, std::string_view text,
                   BeyondAscii beyond_ascii = BeyondAscii::kept);

}  // namespace weightmap::json
