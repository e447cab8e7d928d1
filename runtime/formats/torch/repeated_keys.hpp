// Dicts that hold one key more than once.
//
// Python keeps the first of the equal keys, in its place, and the last of their values. The search
// costs more than the rest of the parse, so it runs only after a repeated key was found.
#pragma once

#include <cstdint>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/tree_walk.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Marks of a later walk begin here, above every mark that this one leaves in the tree.
inline constexpr std::uint32_t mark_after_repeated_keys = 0x80000000;

// Removes the items that Python would not keep from each dict of the tree and each object of a
// dict-like class, and returns how many it removed. Keys with unknown comparison rules, such as
// tuples, stay. The caller must have exclusive access to the tree.
Result<std::uint64_t> drop_repeated_keys(const value::Tree& tree, const ReadLimits& limits);

}  // namespace weightmap::torch
