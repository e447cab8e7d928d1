// Returns errors to the caller.
//
//   TRY(file.check_unchanged());                      // Result<void>, or the value is not needed
//   TRY_ASSIGN(os::File file, os::File::open(path));  // the value, moved out of the Result
//
// Both return the error from the enclosing function, which must return a Result. TRY_ASSIGN
// declares a variable, so it cannot stand alone under an `if`.
#pragma once

#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

// Cold like failure(), so that the compiler moves failure branches off the success path.
[[gnu::cold, gnu::noinline]] inline tl::unexpected<Error> passed_on(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap

#define TRY(expression)                                         \
  do {                                                          \
    if (auto&& tried_ = (expression); !tried_)                  \
      return ::weightmap::passed_on(std::move(tried_).error()); \
  } while (false)

#define WEIGHTMAP_TRY_NAME_(line) tried_##line##_
#define WEIGHTMAP_TRY_ASSIGN_(declaration, expression, name)         \
  auto name = (expression);                                          \
  if (!name) return ::weightmap::passed_on(std::move(name).error()); \
  declaration = std::move(*name)
#define WEIGHTMAP_TRY_ASSIGN_LINE_(declaration, expression, line) \
  WEIGHTMAP_TRY_ASSIGN_(declaration, expression, WEIGHTMAP_TRY_NAME_(line))
#define TRY_ASSIGN(declaration, expression) \
  WEIGHTMAP_TRY_ASSIGN_LINE_(declaration, expression, __LINE__)
