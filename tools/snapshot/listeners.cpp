#include "tools/snapshot/listeners.hpp"

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

constexpr unsigned state_listen = 0x0A;

// Addresses are words as the processor has them in memory, in hexadecimal digits.
std::string address_of(const std::string& digits) {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < words.size() && 8 * i < digits.size(); ++i)
    words[i] = static_cast<std::uint32_t>(std::stoul(digits.substr(8 * i, 8), nullptr, 16));
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(digits.size() == 8 ? AF_INET : AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

std::set<std::uint64_t> sockets_of(pid_t process) {
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

ListeningSocket parse_socket_line(const std::string& line) {
  std::array<char, 33> address{};
  unsigned port = 0, state = 0;
  unsigned long long inode = 0;
  if (std::sscanf(line.c_str(), " %*[^:]: %32[0-9A-F]:%4x %*s %2x %*s %*s %*s %*s %*s %llu",
                  address.data(), &port, &state, &inode) != 4 ||
      state != state_listen)
    return {};
  const std::string digits = address.data();
  if (digits.size() != 8 && digits.size() != 32) return {};
  return {{address_of(digits), static_cast<std::uint16_t>(port)}, inode};
}

std::vector<Listener> listeners_of(const start::ProcessTree& processes) {
  std::set<std::uint64_t> sockets;
  for (const pid_t process : processes.members()) sockets.merge(sockets_of(process));
  std::vector<Listener> listeners;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const ListeningSocket found = parse_socket_line(line);
      if (found.inode != 0 && sockets.contains(found.inode)) listeners.push_back(found.listener);
    }
  }
  return listeners;
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
