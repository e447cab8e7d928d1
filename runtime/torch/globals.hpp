// Which globals a pickle may name, and what is said of each.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "runtime/value/tree.hpp"
#include "weightmap/globals.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// `is_script`: in a TorchScript archive, which has names of its own.
GlobalVerdict judge(std::string_view module, std::string_view name,
                    const std::set<std::string, std::less<>>& allowed, bool is_script = false);

// Fails with unsafe_pickle if the pickle names a global that only attacks need, with
// Globals::torch_safe also for one that is neither in torch's list nor allowed. `file_offset` is
// that of the pickle. Answers whether nothing needed to be allowed.
Result<bool> check_globals(const value::Tree& tree, std::uint64_t file_offset,
                           const OpenOptions& options, bool is_script = false);

}  // namespace weightmap::torch
