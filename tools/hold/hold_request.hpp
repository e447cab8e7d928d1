// The requests of a daemon's clients: JSON objects, one per line. docs/cli.md has the format.
#pragma once

#include <string>
#include <string_view>

#include "tools/hold/keeper.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::hold {

// Returns {"op", "file"}, or {"op", "url", "name"} of a URL. `file` is made absolute, and is empty
// for `status`.
Json make_request(std::string_view operation, const std::string& file,
                  const std::string& name = {});

// Returns the answer to a line: {"ok": true, ...}, or {"ok": false, "error": {...}} for an invalid
// or failed request.
std::string answer(Keeper& keeper, std::string_view line);

// Sends a request to the daemon that listens on `socket`. Fails with its error, or with io without
// an answer.
Result<Json> ask(const std::filesystem::path& socket, const Json& request);

}  // namespace weightmap::cli::hold
