// Process 1 of the namespace in which a command with a snapshot runs. It starts or restores the
// command, has it dumped, passes signals on to it, copies its output, and takes in orphans. Orders
// come in, and each change of its state is a report (messages.hpp):
//
//            start               dump
//   Waiting ───────▶ Running ────────────▶ Dumping     criu dumps the command, which then goes on
//      │              ▲  ▲ ◀─ criu ended ─────┘
//      │ restore      │  │
//      ▼   criu ended │  │ start, once all processes are killed
//   Restoring ────────┘  │
//      └─────────────────┘ criu failed, or it hangs
//
//   Running, and the command ended: Over, the status of the command
#pragma once

#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {

struct Supervision {
  std::vector<std::string> command;
  std::filesystem::path criu;           // to run
  std::filesystem::path meeting_point;  // a folder that is there
  sigset_t signals{};                   // that the command has blocked
};

// Runs until the command has ended, and with it all processes of the namespace. `run` is a socket
// to the process that gives the orders (messages.hpp). All signals are blocked.
void supervise(Descriptor run, const Supervision& what);

}  // namespace weightmap::cli::snapshot
