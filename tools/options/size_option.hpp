// Sizes on the command line: 4096, 64KiB, 1.5G.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace weightmap::cli {

// Passes the size to `set`: a number without a sign, in bytes or in one of K, M, G, T, P, E, each
// 1024 of the one before; KB, Ki and KiB mean the same as K, case is ignored, and spaces may
// precede the unit. A fraction of a byte is dropped. Other text, 0 and more than 64 bits are wrong
// usage, and the message describes the option's values.
void add_size_option(CLI::App& command, const std::string& name,
                     std::function<void(std::uint64_t)> set, const std::string& help);

}  // namespace weightmap::cli
