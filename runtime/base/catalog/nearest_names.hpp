// Suggests names for a misspelled one.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace weightmap::catalog {

// Returns up to three of `count` names that are similar to `wanted`, the nearest first: they
// contain it, or at most a third of its bytes was inserted, deleted or replaced. The work is
// bounded, so that hostile names cost tens of milliseconds at most; the rest is skipped.
[[gnu::cold]] std::vector<std::string_view> nearest_names(
    std::string_view wanted, std::size_t count,
    const std::function<std::string_view(std::size_t)>& name);

}  // namespace weightmap::catalog
