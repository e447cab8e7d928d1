// A gate that holds the processes which criu has restored before their first instruction.
//
// criu runs the script of the gate at several moments. At the one when all is restored and nothing
// runs, the script reads a line from a FIFO, and it fails if there comes none. criu goes on once it
// has ended, and kills what it has restored if it failed.
#pragma once

#include <filesystem>
#include <utility>

#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

class Gate {
 public:
  // Makes a closed gate, whose files are in this folder, in place of an earlier one. Fails with io.
  static Result<Gate> create(const std::filesystem::path& folder);

  // The program for criu's --action-script.
  const std::filesystem::path& script() const noexcept { return script_; }
  void open() const;

 private:
  Gate(std::filesystem::path script, Descriptor fifo)
      : script_(std::move(script)), fifo_(std::move(fifo)) {}

  std::filesystem::path script_;
  Descriptor fifo_;
};

}  // namespace weightmap::cli::snapshot
