// What an interpreter prints.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weightmap::cli::doctor {

// Runs a Python program without single quotes under WEIGHTMAP_PATCH=1 and returns what it printed
// on standard output; nothing if it could not be run, or failed.
std::optional<std::string> python_answer(const std::string& python, std::string_view program);

// Removes one line from the front of the text and returns it.
std::string next_line(std::string& text);

}  // namespace weightmap::cli::doctor
