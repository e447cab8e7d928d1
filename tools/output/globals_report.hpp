// What is said of the globals in a file's pickles.
#pragma once

#include <string>

#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/globals.hpp"

namespace weightmap::cli {

// "torch._utils._rebuild_tensor_v2", safe to print; what it says where only running would tell.
std::string shown_name(const NamedGlobal& global);

// {"format", "code", "pickles": [{"record", "hidden", "bytes_behind", "fault", "globals": [...]}]}
Json describe(const FileGlobals& globals);
// {"global", "verdict", "record", "file_offset", "count"}
Json describe(const PickleGlobals& pickle, const NamedGlobal& global);

// A table, and a line for all that is odd about a pickle.
void print(Output& out, const TableStyle& style, const FileGlobals& globals);

// Whether names may be missing: a pickle is damaged, or needs more memory than it may.
bool has_fault(const FileGlobals& globals);

// "data.pkl: 12 bytes behind its end"; one for each thing that is odd about the pickles.
std::vector<std::string> oddities(const FileGlobals& globals);

}  // namespace weightmap::cli
