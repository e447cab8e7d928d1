// The TCP addresses at which processes listen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"

namespace weightmap::cli::snapshot {

struct Listener {
  std::string address;  // "127.0.0.1", "::"
  std::uint16_t port = 0;

  friend bool operator==(const Listener&, const Listener&) = default;
};

struct ListeningSocket {
  Listener listener;
  std::uint64_t inode = 0;
};
// Parses a line of /proc/net/tcp or tcp6 (proc(5)). The inode is 0 for one of another state.
ListeningSocket parse_socket_line(const std::string& line);

// Returns those of the processes, from /proc.
std::vector<Listener> listeners_of(const start::ProcessTree& processes);

// Returns "127.0.0.1:8000" for the first address that another process listens at, for itself alone;
// empty if all are free. criu would restore a second listener beside it, in silence.
std::string first_taken(const std::vector<Listener>& listeners);

}  // namespace weightmap::cli::snapshot
