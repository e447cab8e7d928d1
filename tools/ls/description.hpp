// Describes a file and what opening it took, for `ls --info`.
#pragma once

#include <string>

#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

Json describe_file(const std::string& file, const Checkpoint& checkpoint);
void print_description(Output& out, const std::string& file, const Checkpoint& checkpoint);

}  // namespace weightmap::cli
