// Standard output, with the first failure remembered instead of lost; and what is said beside it.
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

  // True once a write failed; what follows is dropped, so long loops may stop here.
  bool failed() const noexcept { return error_ != 0; }
  // The reader closed the pipe (`weightmap ls FILE | head`): not a fault of ours.
  bool reader_left() const noexcept;
  // Flushes, and says what went wrong, if anything but the reader's leaving did.
  Result<void> finish();

 private:
  int error_ = 0;  // errno of the first failure
};

// A line on standard error, in the name of the tool.
void say(const std::string& what);

}  // namespace weightmap::cli
