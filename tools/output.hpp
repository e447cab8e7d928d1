// Standard output, with the first failure remembered instead of lost.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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
  // What has been done by now and is to be said if it cannot be said here: "model.pt is in place".
  void note_done(std::string what) { done_ = std::move(what); }
  // Flushes, and says what went wrong, if anything but the reader's leaving did.
  Result<void> finish();

 private:
  std::string done_;
  int error_ = 0;  // errno of the first failure
};

}  // namespace weightmap::cli
