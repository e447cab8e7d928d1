// What a client of a daemon may ask for: JSON objects, one a line. docs/cli.md has the format.
#pragma once

#include <string>
#include <string_view>

#include "tools/hold/keeper.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::hold {

// {"op", "file"}; `file` made absolute, for `status` empty.
Json make_request(std::string_view operation, const std::string& file);

// The answer to a line: {"ok": true, ...}, or {"ok": false, "error": {...}} to whatever is not a
// request or cannot be done.
std::string answer(Keeper& keeper, std::string_view line);

// Asks the daemon that listens on `socket`. Fails with its error, or with io if nobody answers.
Result<Json> ask(const std::filesystem::path& socket, const Json& request);

}  // namespace weightmap::cli::hold
