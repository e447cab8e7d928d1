// Errors: a code for the program, a sentence for the user, a place in the file.
//
// A bad file is an ordinary outcome, so every function that can meet one returns a Result
// (result.hpp) and does not throw for it. The only exception that passes through is std::bad_alloc.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "weightmap/export.hpp"

namespace weightmap {

// Codes are grouped by what the caller can do next, not by cause.
enum class ErrorCode : std::uint8_t {
  io,  // the operating system refused: missing, unreadable, disk error; retry or fix the cause
  not_a_checkpoint,  // the file is something else (the message names it where it can)
  corrupt,           // the file contradicts itself or ends early; fetch it again
  unsupported,       // a valid file that needs something this version does not support
  unsafe_pickle,     // the pickle needs something that only running code could provide
  limit_exceeded,    // a bound in OpenOptions::limits was reached; raise it if the file is trusted
  invalid_argument,  // the call itself is wrong: wrong dtype, index out of range, ambiguous name
  not_found,         // nothing in the checkpoint has this name or path
  cancelled,         // the caller's Progress returned false (progress.hpp)
};

// Returns "io", "not_a_checkpoint", ...: the stable spelling of JSON output.
WEIGHTMAP_API std::string_view to_string(ErrorCode code) noexcept;

struct Error {
  static constexpr std::uint64_t no_offset = ~std::uint64_t{0};

  ErrorCode code = ErrorCode::io;
  // One sentence that names the record or tensor, the field, the expected and the found value. Text
  // from the file is escaped and shortened, so it is safe on a terminal or in a log.
  std::string message = {};
  // The first wrong byte of the file, or no_offset if no single byte is wrong.
  std::uint64_t file_offset = no_offset;
  // The path as the caller passed it, escaped; empty if no file was involved.
  std::string file = {};
  // The errno of the failed system call; 0 if there was none.
  int os_error = 0;
};

// Returns "model.pt: message (at byte 4096)": the line that the command line tool prints.
WEIGHTMAP_API std::string to_string(const Error& error);

// Writes the same line.
WEIGHTMAP_API std::ostream& operator<<(std::ostream& out, const Error& error);

}  // namespace weightmap
