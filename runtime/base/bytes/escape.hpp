// Escapes text from a file for printing: control characters, quotes, backslashes and bytes that are
// not UTF-8 become \xNN, and text beyond `max_bytes` is cut with "...". Adds no quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weightmap::bytes {

[[gnu::cold]] std::string escape(std::string_view text, std::size_t max_bytes = 200);
// escape() within double quotes.
[[gnu::cold]] std::string quote(std::string_view text, std::size_t max_bytes = 200);

}  // namespace weightmap::bytes
