// Formats text for users: names from files made safe for a terminal, sizes, shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::cli {

// Escapes as \xNN everything that could move the cursor, change the direction of writing or is not
// UTF-8, and doubles backslashes; other characters stay. Adds quotes if the text is empty or begins
// or ends with a space.
std::string printable(std::string_view text);

// Returns the columns that a UTF-8 text takes on a terminal.
std::size_t width(std::string_view text) noexcept;

// Returns "512 B", "1.5 KiB", "12.0 MiB".
std::string human_bytes(std::uint64_t bytes);

// Returns "1 tensor", "3 tensors".
std::string count(std::uint64_t number, std::string_view noun);

// Returns "[4, 4]", "[]" for a scalar.
std::string dims(std::span<const std::int64_t> values);

// Returns "one, two".
std::string joined_words(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace weightmap::cli
