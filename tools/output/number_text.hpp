// Numbers found in tensors, in tables and in JSON.
#pragma once

#include <optional>
#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/statistics.hpp"

namespace weightmap::cli {

// "0.25", with six digits at most; "-" for nothing. Integers are exact.
std::string number_text(const std::optional<double>& value);
std::string number_text(const std::optional<Number>& number);

// null for nothing, and for what is not finite, which JSON cannot say.
Json number_json(const std::optional<double>& value);
Json number_json(const std::optional<Number>& number);

}  // namespace weightmap::cli
