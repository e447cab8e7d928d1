// Looks at everything that was read, so that a sanitizer sees what should not be looked at.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "weightmap/value.hpp"

namespace weightmap::fuzz {

void look_at(std::span<const std::byte> bytes);
void look_at_text(std::string_view text);
// Each node once, for which `visit` is called if there is one.
void look_at(const Value& root, const std::function<void(const Value&)>& visit = {});

}  // namespace weightmap::fuzz
