// A value or an Error. Has the members of C++23's std::expected: has_value(), value(), error(),
// and_then(), transform(), value_or(). `value()` throws for those who prefer exceptions.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "weightmap/error.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

template <class T>
using Result = tl::expected<T, Error>;

// return failure(ErrorCode::corrupt, "...", offset);
// Cold: compilers move the branches that end here out of the way of the ones that succeed, so that
// a small open touches fewer pages of code.
[[gnu::cold]] WEIGHTMAP_API tl::unexpected<Error> failure(
    ErrorCode code, std::string message, std::uint64_t file_offset = Error::no_offset);

}  // namespace weightmap
