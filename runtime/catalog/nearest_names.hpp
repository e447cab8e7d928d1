// Names for somebody who misspelled one.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace weightmap::catalog {

// Up to three of `count` names that `wanted` may stand for, the nearest first: they contain it, or
// a third of its bytes at most was inserted, deleted or replaced. The work is bounded, so that
// crafted names cost tens of milliseconds at most: what comes behind the bound is not looked at.
[[gnu::cold]] std::vector<std::string_view> nearest_names(
    std::string_view wanted, std::size_t count,
    const std::function<std::string_view(std::size_t)>& name);

}  // namespace weightmap::catalog
