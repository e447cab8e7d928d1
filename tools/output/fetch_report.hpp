// What a fetch of a remote file did, in words and as JSON.
#pragma once

#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::cli {

// Returns "12 requests, 2 repeated, 4.0 MiB compared with CRC-32s", with what applies.
std::string fetch_words(const FetchReport& report);

// Returns {"tag", "version", "bytes", "resumed_bytes", "verified_bytes", "requests", ...}.
Json describe(const FetchReport& report);

}  // namespace weightmap::cli
