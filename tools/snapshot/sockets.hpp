// The sockets of processes, as the kernel's tables say them, and whether others have their names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"

namespace weightmap::cli::snapshot {

struct Address {
  std::string host;  // "127.0.0.1", "::"
  std::uint16_t port = 0;
  bool is_shared = false;  // of a listener: with other listeners, by SO_REUSEPORT

  friend bool operator==(const Address&, const Address&) = default;
};

// Returns "127.0.0.1:8000", "[::]:8000".
std::string to_string(const Address& address);

struct Socket {
  enum State : std::uint8_t { listening, connected, other };
  State state = other;
  Address local, remote;
  std::uint64_t inode = 0;
};

// Parses a line of /proc/net/tcp or tcp6 (proc(5)). The inode is 0 for what is no such line.
Socket parse_socket_line(const std::string& line);

// A UNIX socket.
struct NamedSocket {
  std::string path;  // as it was bound; empty for one without a name
  std::uint64_t inode = 0;
};

// Parses a line of /proc/net/unix (proc(5)). The inode is 0 for what is no such line.
NamedSocket parse_named_socket_line(const std::string& line);

std::vector<Address> listeners_among(const std::vector<Socket>& sockets);
// True if two of them are the ends of one connection.
bool have_inner_connection(const std::vector<Socket>& sockets);

// Returns the TCP sockets of the processes that listen or are connected, from /proc.
std::vector<Socket> sockets_of(const start::ProcessTree& processes);

// Returns "127.0.0.1:8000" for the first address that another process listens at, for itself alone;
// empty if all are free. criu would restore a second listener beside it, in silence.
std::string first_taken(const std::vector<Address>& listeners);

// Returns the absolute names of the processes' UNIX sockets, but for those in /dev/shm, which is
// part of an image. criu gives a restored socket its name again, and takes it from a process that
// has it. It refuses where the folder of the name is gone.
std::vector<std::string> socket_files_of(const start::ProcessTree& processes);

// Returns the first of the files whose socket a process has; empty if there is none.
std::string first_used(const std::vector<std::string>& files);

}  // namespace weightmap::cli::snapshot
