// The use of experts as a picture: a line for each layer, a character for each expert.
#pragma once

#include <string>

#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

// `profile` is a file of ResidentSet::save_profile(). Prints, or returns the document with `json`.
// Fails with io or corrupt about the profile, with not_found if the checkpoint has no experts.
Result<Json> show_experts(Output& out, const Checkpoint& checkpoint, const std::string& profile,
                          const TableStyle& style, bool json);

}  // namespace weightmap::cli
