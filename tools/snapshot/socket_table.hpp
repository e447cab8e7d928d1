// Sockets, as a line of the kernel's tables says them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace weightmap::cli::snapshot
