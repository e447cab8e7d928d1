// What a daemon holds, for Prometheus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/support/json_out.hpp"

namespace weightmap::cli::hold {

// The text exposition format, version 0.0.4, of a status as Keeper::describe() has it. Of a figure
// that is null or not known there is no line. The label `checkpoint` is the path, with U+FFFD in
// the place of what is not UTF-8.
std::string metrics_text(const Json& status, std::optional<std::uint64_t> read_bytes);

}  // namespace weightmap::cli::hold
