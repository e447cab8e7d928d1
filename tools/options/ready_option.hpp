// When a start is over, on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/run/readiness.hpp"

namespace weightmap::cli {

// Adds --ready. Text that parse_ready() refuses is wrong usage.
inline void add_ready_option(CLI::App& command, std::string& text) {
  command
      .add_option("--ready", text,
                  "When the start is over: http://HOST:PORT/PATH answers, a port is open, a file\n"
                  "is there, or after so many seconds, e.g. 30s; otherwise when nothing was read\n"
                  "for 4 s")
      ->check([](const std::string& word) {
        const Result<start::Ready> ready = start::parse_ready(word);
        return ready ? std::string() : ready.error().message;
      })
      ->type_name("WHEN");
}

}  // namespace weightmap::cli
