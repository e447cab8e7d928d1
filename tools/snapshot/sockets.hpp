// The TCP sockets of processes: where they listen, and whether they talk to each other.
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

struct Socket {
  enum State : std::uint8_t { listening, connected, other };
  State state = other;
  Listener local, remote;  // addresses
  std::uint64_t inode = 0;
};
// Parses a line of /proc/net/tcp or tcp6 (proc(5)). The inode is 0 for what is no such line.
Socket parse_socket_line(const std::string& line);

// Returns the sockets of the processes that listen or are connected, from /proc.
std::vector<Socket> sockets_of(const start::ProcessTree& processes);

std::vector<Listener> listeners_among(const std::vector<Socket>& sockets);
// True if two of them are the ends of one connection.
bool have_inner_connection(const std::vector<Socket>& sockets);

// Returns "127.0.0.1:8000" for the first address that another process listens at, for itself alone;
// empty if all are free. criu would restore a second listener beside it, in silence.
std::string first_taken(const std::vector<Listener>& listeners);

}  // namespace weightmap::cli::snapshot
