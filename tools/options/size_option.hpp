// Sizes on the command line: 4096, 64KiB, 1.5G.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::cli {

// Parses a number without a sign, in bytes or in one of K, M, G, T, P, E, each 1024 of the one
// before; KB, Ki and KiB mean the same as K, case is ignored, and spaces may precede the unit. A
// fraction of a byte is dropped. Returns nullopt for any other text, and beyond 64 bits.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Passes the size to `set`. Text that is not a size, or 0, is wrong usage, and the message
// describes the option's values.
void add_size_option(CLI::App& command, const std::string& name,
                     std::function<void(std::uint64_t)> set, const std::string& help);

}  // namespace weightmap::cli
