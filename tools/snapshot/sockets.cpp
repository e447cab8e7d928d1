#include "tools/snapshot/sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// Of enum tcp_state in the kernel.
constexpr unsigned state_established = 1, state_listen = 10;

// Addresses are words as the processor has them in memory, in hexadecimal digits.
std::string address_of(const std::string& digits) {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < words.size() && 8 * i < digits.size(); ++i)
    words[i] = static_cast<std::uint32_t>(std::stoul(digits.substr(8 * i, 8), nullptr, 16));
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(digits.size() == 8 ? AF_INET : AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

std::set<std::uint64_t> socket_inodes_of(pid_t process) {
  std::set<std::uint64_t> inodes;
  std::error_code error;
  const fs::path folder = "/proc/" + std::to_string(process) + "/fd";
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code closed;
    unsigned long long inode = 0;
    const fs::path target = fs::read_symlink(at->path(), closed);
    if (std::sscanf(target.c_str(), "socket:[%llu]", &inode) == 1) inodes.insert(inode);
  }
  return inodes;
}

bool is_free(const Listener& listener) {
  sockaddr_storage storage{};
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  socklen_t size = sizeof four;
  if (::inet_pton(AF_INET, listener.address.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(listener.port);
  } else if (::inet_pton(AF_INET6, listener.address.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(listener.port);
    size = sizeof six;
  }
  const Descriptor socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  // So that connections that end do not count, nor listeners that share their port by intention.
  for (const int option : {SO_REUSEADDR, SO_REUSEPORT})
    ::setsockopt(socket.get(), SOL_SOCKET, option, &yes, sizeof yes);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0 &&
         ::listen(socket.get(), 1) == 0;
}

}  // namespace

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
          {address_of(here), static_cast<std::uint16_t>(local_port)},
          {address_of(there), static_cast<std::uint16_t>(remote_port)},
          inode};
}

std::vector<Socket> sockets_of(const start::ProcessTree& processes) {
  std::set<std::uint64_t> inodes;
  for (const pid_t process : processes.members()) inodes.merge(socket_inodes_of(process));
  std::vector<Socket> sockets;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      Socket found = parse_socket_line(line);
      if (found.state != Socket::other && inodes.contains(found.inode))
        sockets.push_back(std::move(found));
    }
  }
  return sockets;
}

std::vector<Listener> listeners_among(const std::vector<Socket>& sockets) {
  std::vector<Listener> listeners;
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

std::string first_taken(const std::vector<Listener>& listeners) {
  for (const Listener& each : listeners)
    if (!is_free(each)) {
      const bool is_long = each.address.find(':') != std::string::npos;
      return (is_long ? "[" + each.address + "]" : each.address) + ":" + std::to_string(each.port);
    }
  return {};
}

}  // namespace weightmap::cli::snapshot
