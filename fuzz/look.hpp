// Reads everything, so that a sanitizer detects invalid accesses.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "weightmap/value.hpp"

namespace weightmap::fuzz {

void look_at(std::span<const std::byte> bytes);
void look_at_text(std::string_view text);
// Visits each node once, and calls `visit` for it if there is one.
void look_at(const Value& root, const std::function<void(const Value&)>& visit = {});

}  // namespace weightmap::fuzz
