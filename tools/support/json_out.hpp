// The stable JSON of the tool: one document on standard output. docs/cli.md describes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

using Json = nlohmann::ordered_json;

// One line. Bytes that are not UTF-8 become U+FFFD, since JSON has no way to say them.
std::string to_text(const Json& json);

// {"name", "path", "dtype", "shape", ...}; keys of the path as strings, indices as numbers.
Json describe(const Checkpoint& checkpoint, const NamedTensor& tensor);

// {"code", "message", "file_offset"}; file_offset is null where no byte is to blame.
Json describe(const Error& error);

}  // namespace weightmap::cli
