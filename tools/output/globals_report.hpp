// Prints the globals of a file's pickles.
#pragma once

#include <string>
#include <vector>

#include "runtime/services/inspect/list_globals.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"

namespace weightmap::cli {

// Returns "torch._utils._rebuild_tensor_v2", escaped, or a note if only running the pickle could
// tell.
std::string shown_name(const NamedGlobal& global);

// Returns [{"record", "file_offset", "hidden", "bytes_behind", "fault", "globals": [...]}], an
// object for each pickle.
Json describe(const FileGlobals& globals);
// Returns {"global", "verdict", "record", "file_offset", "count"}.
Json describe(const PickleGlobals& pickle, const NamedGlobal& global);

// Prints a table, and a line for each oddity of a pickle.
void print(Output& out, const FileGlobals& globals);

// Returns the oddities of the pickles, such as "data.pkl: 12 bytes behind its end".
std::vector<std::string> oddities(const FileGlobals& globals);

}  // namespace weightmap::cli
