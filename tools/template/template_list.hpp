// What templates of this user there are.
#pragma once

#include "tools/support/output.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::templates {

// Prints each template's process, memory and command.
Result<void> list_templates(Output& out, bool json);
// Has all of them take no further start, and prints how many there were.
Result<void> end_templates(Output& out, bool json);

}  // namespace weightmap::cli::templates
