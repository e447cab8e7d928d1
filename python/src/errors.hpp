// Errors of the library become exceptions of weightmap._errors.
#pragma once

#include <utility>

#include "weightmap/result.hpp"

namespace weightmap::python {

// Throws the exception for `error`; see weightmap/_errors.py for which class that is. Needs the
// GIL.
[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise(ErrorCode code, std::string message);

// The value, or an exception. Needs the GIL.
template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace weightmap::python
