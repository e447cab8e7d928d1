// A value or an Error. Has the members of C++23's std::expected: has_value(), value(), error(),
// and_then(), transform(), value_or(). `value()` throws for those who prefer exceptions.
#pragma once

#include <tl/expected.hpp>
#include <utility>

#include "weightmap/error.hpp"

namespace weightmap {

template <class T>
using Result = tl::expected<T, Error>;

// return failure(ErrorCode::corrupt, "...", offset);
inline tl::unexpected<Error> failure(ErrorCode code, std::string message,
                                     std::uint64_t file_offset = Error::no_offset) {
  return tl::unexpected<Error>(Error{code, std::move(message), file_offset, {}});
}

}  // namespace weightmap
