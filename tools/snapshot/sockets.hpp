// The TCP sockets of processes, and whether others have their addresses.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"
#include "tools/snapshot/socket_table.hpp"

namespace weightmap::cli::snapshot {

// One of the descriptors of a socket.
struct HeldSocket {
  pid_t process = 0;
  int descriptor = -1;
};

// Returns the sockets of processes by their inodes.
std::map<std::uint64_t, HeldSocket> held_sockets(const start::ProcessTree& processes);

// Returns the sockets of the processes that listen or are connected, from /proc.
std::vector<Socket> sockets_of(const start::ProcessTree& processes);

// Returns "127.0.0.1:8000" for the first address that another process listens at, for itself alone;
// empty if all are free. criu would restore a second listener beside it, in silence.
std::string first_taken(const std::vector<Address>& listeners);

}  // namespace weightmap::cli::snapshot
