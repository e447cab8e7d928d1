// Text for people: names from files made safe for a terminal, sizes, shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::cli {

// `text` with everything that could move the cursor, change the direction of writing or is not
// UTF-8 written as \xNN, and a backslash as two; other characters stay. In quotes if it is empty or
// begins or ends with a blank.
std::string printable(std::string_view text);

// Cells that a UTF-8 text takes on a terminal.
std::size_t width(std::string_view text) noexcept;

// "512 B", "1.5 KiB", "12.0 MiB".
std::string human_bytes(std::uint64_t bytes);

// "1 tensor", "3 tensors".
std::string count(std::uint64_t number, std::string_view noun);

// "[4, 4]", "[]" for a scalar.
std::string dims(std::span<const std::int64_t> values);

// "one, two".
std::string joined_words(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace weightmap::cli
