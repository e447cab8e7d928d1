// Standard output that remembers its first failure; and messages on standard error.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::cli {

class Output {
 public:
  void write(std::string_view text) noexcept;
  void write(std::span<const std::byte> bytes) noexcept;

  // True once a write failed; later output is dropped, so long loops may stop here.
  bool failed() const noexcept { return error_ != 0; }
  // True if the reader closed the pipe (`weightmap ls FILE | head`), which is not an error.
  bool reader_left() const noexcept;
  // Flushes, and returns the failure unless the reader left.
  Result<void> finish();

 private:
  int error_ = 0;  // errno of the first failure
};

// Writes a line to standard error, with the tool's name.
void say(const std::string& what);

}  // namespace weightmap::cli
