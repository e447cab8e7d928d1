// Sizes on the command line: 4096, 64KiB, 1.5G.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::cli {

// A number without a sign, in bytes or in one of K, M, G, T, P, E, each 1024 of the one before; KB,
// Ki and KiB mean the same as K, capitals do not matter, and blanks may stand before the unit. A
// part of a byte is dropped. nullopt for any other text, and for what 64 bits do not hold.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Gives the size to `set`. Text that is no size, or 0, is wrong usage, answered by what the option
// takes.
void add_size_option(CLI::App& command, const std::string& name,
                     std::function<void(std::uint64_t)> set, const std::string& help);

}  // namespace weightmap::cli
