// Copies what a command writes to a pipe, so that an image has pipes of its own as its output
// wherever the output of a start goes.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>

#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

class OutputCopy {
 public:
  // Copies to `target`, an open descriptor of this process.
  explicit OutputCopy(int target) noexcept : target_(target) {}

  // Makes the pipe. Fails with io.
  Result<void> open();
  // The end that the command writes to; until close_input().
  int input() const noexcept { return input_.get(); }
  void close_input() noexcept { input_ = Descriptor(); }
  // The number by which the system, and an image, know the pipe.
  std::uint64_t inode() const noexcept;

  // What poll(2) has to wait for; no descriptor once all ends are closed.
  pollfd wanted() const noexcept;
  // Reads or writes once, after poll() found that this does not block.
  void step();
  // Copies what is there, waiting only for the target.
  void finish();

 private:
  void read();
  void write();

  int target_;
  Descriptor input_, output_;
  std::string pending_;  // read, and not written yet
};

}  // namespace weightmap::cli::snapshot
