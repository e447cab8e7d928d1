// Options that take words, or the lines of a file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weightmap::cli {

// Adds a repeatable option of which each value is a word or, after @, a file with a word on each
// line. Blanks at either end of a line, empty lines and lines that begin with # are skipped. A file
// that cannot be read is wrong usage.
CLI::Option* add_listed_words(CLI::App& command, const std::string& name,
                              std::vector<std::string>& words, const std::string& help);

}  // namespace weightmap::cli
