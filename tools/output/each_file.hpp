// What a command says of several FILEs, one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

struct OfFile {
  int code;       // as if it were the only FILE
  Json document;  // where JSON is asked for
};

// Examines each file, also behind one that fails, and returns the worst exit code. The JSON of one
// is its document, that of several {"files": [...]}, in which a file that failed has "error".
Result<int> examine_each(Output& out, const std::vector<std::string>& files, bool json,
                         const std::function<Result<OfFile>(const std::string& file)>& examine);

}  // namespace weightmap::cli
