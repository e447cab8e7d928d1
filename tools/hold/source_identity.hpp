// What a URL names, whatever signs it today.
#pragma once

#include <string>
#include <string_view>

namespace weightmap::cli::hold {

// The URL without user, password and fragment, and without those parameters of its query that sign
// it or are a token. `shown` is the same without its query: RangeSource::name().
std::string source_identity(std::string_view url, std::string shown);

// 16 hexadecimal digits.
std::string digest_of(const std::string& identity);

}  // namespace weightmap::cli::hold
