// Classifies the globals that a pickle may name.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/global_verdict.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// `is_script` is true for a TorchScript archive, which has names of its own.
GlobalVerdict judge(std::string_view module, std::string_view name,
                    const std::set<std::string, std::less<>>& allowed, bool is_script = false);

// Fails with unsafe_pickle if the pickle names a global that only attacks need and, with
// Globals::torch_safe, also if a global is neither in torch's list nor allowed. `file_offset` is
// the pickle's. Returns true if no global needed the caller's permission.
Result<bool> check_globals(const value::Tree& tree, std::uint64_t file_offset,
                           const OpenOptions& options, bool is_script = false);

}  // namespace weightmap::torch
