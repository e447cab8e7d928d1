// Formats numbers from tensors, for tables and JSON.
#pragma once

#include <optional>
#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {

// Returns "0.25", with at most six digits; "-" if unset. Integers are exact.
std::string number_text(const std::optional<double>& value);
std::string number_text(const std::optional<Number>& number);

// Returns null if the number is unset or not finite, which JSON cannot express.
Json number_json(const std::optional<double>& value);
Json number_json(const std::optional<Number>& number);

}  // namespace weightmap::cli
