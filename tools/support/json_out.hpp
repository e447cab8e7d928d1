// The tool's stable JSON: one document on standard output. docs/cli.md describes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

using Json = nlohmann::ordered_json;

// Returns one line. Bytes that are not UTF-8 become U+FFFD, since JSON cannot express them.
std::string to_text(const Json& json);

// Returns {"name", "path", "dtype", "shape", ...}; keys of the path are strings, indices numbers.
Json describe(const Checkpoint& checkpoint, const NamedTensor& tensor);

// Returns {"code", "message", "file_offset"}; file_offset is null if no single byte is wrong.
Json describe(const Error& error);

}  // namespace weightmap::cli
