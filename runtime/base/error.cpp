#include <ostream>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

std::string to_string(const Error& error) {
  std::string text;
  if (!error.file.empty()) text += error.file + ": ";
  text += error.message;
  if (error.file_offset != Error::no_offset)
    text += " (at byte " + std::to_string(error.file_offset) + ")";
  return text;
}

std::ostream& operator<<(std::ostream& out, const Error& error) { return out << to_string(error); }

tl::unexpected<Error> failure(ErrorCode code, std::string message, std::uint64_t file_offset) {
  return tl::unexpected<Error>(Error{code, std::move(message), file_offset, {}});
}

}  // namespace weightmap
