// The table of the formats that are opened.
#pragma once

#include "runtime/format/format.hpp"

namespace weightmap {

// The format of a file by its content, never by its name. If it is none of ours, the error says
// what the file is instead.
Result<const format::Format*> format_of(format::Input& input);

}  // namespace weightmap
