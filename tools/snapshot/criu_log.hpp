// The log of criu, which tells why a dump or a restore failed.
#pragma once

#include <filesystem>
#include <string>

namespace weightmap::cli::snapshot {

// Returns the first error, without the place in criu's source; empty if there is none.
std::string first_error_in(const std::filesystem::path& log);

}  // namespace weightmap::cli::snapshot
