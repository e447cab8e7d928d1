#include "runtime/system/os_error.hpp"

#include <cerrno>
#include <string>
#include <system_error>

namespace weightmap::os {
namespace {

#ifdef __clang__
// UndefinedBehaviorSanitizer checks an object's type through a pipe, which it cannot open if the
// error is that too many files are open.
[[clang::no_sanitize("vptr")]]
#endif
std::string
message_of(int error_number) {
  return std::generic_category().message(error_number);
}

}  // namespace

Error os_error(const std::string& action, int error_number, std::uint64_t file_offset) {
  return {ErrorCode::io,
          "cannot " + action + ": " + message_of(error_number),
          file_offset,
          {},
          error_number};
}

tl::unexpected<Error> os_failure(const std::string& action) {
  return tl::unexpected<Error>(os_error(action, errno));
}

}  // namespace weightmap::os
