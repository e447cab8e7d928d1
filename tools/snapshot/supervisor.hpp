// Process 1 of the namespace in which a command with a snapshot runs. It starts or restores the
// command, has it dumped, passes signals on to it, copies its output, and takes in orphans. Orders
// come in, and each change of its state is a report:
//
//            start               dump
//   Waiting ───────▶ Running ────────────▶ Dumping     criu dumps the command, which then goes on
//      │              ▲  ▲ ◀─ criu ended ─────┘
//      │ restore      │  │
//      ▼   criu ended │  │ once all processes are killed: start
//   Restoring ────────┘  │
//      └─────────────────┘ order to start; criu failed, or it hangs
//
// What is being restored stands still before its first instruction until the order to go on.
//
//   Running, and the command ended: Over, the status of the command
#pragma once

#include <signal.h>

#include <array>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/snapshot/manifest.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {

// What `weightmap run` says to it, in messages of a socket that keeps them apart.
struct Order {
  enum Kind : std::uint8_t {
    start,    // the command, in place of what is being restored, if anything is
    restore,  // `folder`; the command if that fails
    go_on,    // what is being restored
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

// What it answers.
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

struct Supervision {
  std::vector<std::string> command;
  std::filesystem::path criu;           // to run
  std::filesystem::path meeting_point;  // a folder that is there
  sigset_t signals{};                   // that the command has blocked
};

// Runs until the command has ended, and with it all processes of the namespace. `run` is a socket
// to the process that gives the orders. All signals are blocked.
void supervise(Descriptor run, const Supervision& what);

}  // namespace weightmap::cli::snapshot
