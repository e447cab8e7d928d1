#include <ostream>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::io:
      return "io";
    case ErrorCode::not_a_checkpoint:
      return "not_a_checkpoint";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::unsafe_pickle:
      return "unsafe_pickle";
    case ErrorCode::limit_exceeded:
      return "limit_exceeded";
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::cancelled:
      return "cancelled";
  }
  return "unknown";
}

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
