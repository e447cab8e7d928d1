// Dicts that hold one key more than once.
//
// Python keeps the first of the equal keys, in its place, and the last of their values. Looking for
// them costs more than all else in a pickle, so it is done only once somebody has met one.
#pragma once

#include <cstdint>

#include "runtime/torch/tree_walk.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Above every mark that is left in the tree: where those of another walk begin.
inline constexpr std::uint32_t mark_after_repeated_keys = 0x80000000;

// Takes what Python would not keep out of each dict of the tree, and out of each object of a class
// that is like a dict, and answers how many items that were. Keys that are compared by rules that
// are not known here, such as tuples, stay. Nobody else may look at the tree meanwhile.
Result<std::uint64_t> drop_repeated_keys(const value::Tree& tree, const ReadLimits& limits);

}  // namespace weightmap::torch
