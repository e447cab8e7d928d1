#include "tools/snapshot/socket_table.hpp"

#include <arpa/inet.h>

#include <array>
#include <cstdio>

namespace weightmap::cli::snapshot {
namespace {

// Of enum tcp_state in the kernel.
constexpr unsigned state_established = 1, state_listen = 10;

// Addresses are words as the processor has them in memory, in hexadecimal digits.
std::string host_of(const std::string& digits) {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < words.size() && 8 * i < digits.size(); ++i)
    words[i] = static_cast<std::uint32_t>(std::stoul(digits.substr(8 * i, 8), nullptr, 16));
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(digits.size() == 8 ? AF_INET : AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

}  // namespace

std::string to_string(const Address& address) {
  const bool is_long = address.host.find(':') != std::string::npos;
  return (is_long ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Socket parse_socket_line(const std::string& line) {
  std::array<char, 33> local{}, remote{};
  unsigned local_port = 0, remote_port = 0, state = 0;
  unsigned long long inode = 0;
  if (std::sscanf(line.c_str(),
                  " %*[^:]: %32[0-9A-F]:%4x %32[0-9A-F]:%4x %2x %*s %*s %*s %*s %*s %llu",
                  local.data(), &local_port, remote.data(), &remote_port, &state, &inode) != 6)
    return {};
  const std::string here = local.data(), there = remote.data();
  if ((here.size() != 8 && here.size() != 32) || there.size() != here.size()) return {};
  return {state == state_listen        ? Socket::listening
          : state == state_established ? Socket::connected
                                       : Socket::other,
          {host_of(here), static_cast<std::uint16_t>(local_port), false},
          {host_of(there), static_cast<std::uint16_t>(remote_port), false},
          inode};
}

NamedSocket parse_named_socket_line(const std::string& line) {
  unsigned long long inode = 0;
  int end = 0;
  if (std::sscanf(line.c_str(), " %*[0-9a-fA-F]: %*x %*x %*x %*x %*x %llu%n", &inode, &end) != 1)
    return {};
  const std::size_t path = static_cast<std::size_t>(end) + 1;
  return {path < line.size() ? line.substr(path) : std::string(), inode};
}

std::vector<Address> listeners_among(const std::vector<Socket>& sockets) {
  std::vector<Address> listeners;
  for (const Socket& each : sockets)
    if (each.state == Socket::listening) listeners.push_back(each.local);
  return listeners;
}

bool have_inner_connection(const std::vector<Socket>& sockets) {
  for (const Socket& one : sockets)
    for (const Socket& other : sockets)
      if (one.state == Socket::connected && other.state == Socket::connected &&
          one.local == other.remote && one.remote == other.local)
        return true;
  return false;
}

}  // namespace weightmap::cli::snapshot
