// What `weightmap run` and the supervisor in the namespace of a command say to each other, in
// messages of a socket that keeps them apart.
#pragma once

#include <array>
#include <climits>
#include <cstdint>

#include "tools/snapshot/manifest.hpp"

namespace weightmap::cli::snapshot {

struct Order {
  enum Kind : std::uint8_t {
    start,    // the command
    restore,  // `folder`; the command if that fails
    dump,     // into `folder`
    no_dump,  // will come: a command that waits for one goes on
  };
  Kind kind = start;
  std::array<char, PATH_MAX> folder{};
  std::array<std::uint64_t, 2> pipes{};  // of the dumped processes
  pid_t root = 0;
  bool keeps_connections = false;
  std::uint64_t image_bytes = 0;
};

struct Report {
  enum Kind : std::uint8_t {
    prepared,      // the namespaces are there
    unprepared,    // and will not be: `text` is why
    started,       // as a new process
    restored,      // from the image
    not_restored,  // `text` is why; the command is started instead
    dumped,        // `pipes` are those of the image
    not_dumped,    // `text` is why; the command goes on
    ended,         // `status` is that of wait(2)
  };
  Kind kind = prepared;
  int status = 0;
  bool is_lasting = false;  // a failure that comes again
  std::array<std::uint64_t, 2> pipes{};
  std::array<char, 400> text{};
};

}  // namespace weightmap::cli::snapshot
