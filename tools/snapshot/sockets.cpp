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

bool is_free(const Address& listener) {
  sockaddr_storage storage{};
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  socklen_t size = sizeof four;
  if (::inet_pton(AF_INET, listener.host.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(listener.port);
  } else if (::inet_pton(AF_INET6, listener.host.c_str(), &six.sin6_addr) == 1) {
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

std::set<std::uint64_t> socket_inodes_of(const start::ProcessTree& processes) {
  std::set<std::uint64_t> inodes;
  for (const pid_t process : processes.members()) inodes.merge(socket_inodes_of(process));
  return inodes;
}

std::vector<Socket> sockets_of(const start::ProcessTree& processes) {
  const std::set<std::uint64_t> inodes = socket_inodes_of(processes);
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

std::string first_taken(const std::vector<Address>& listeners) {
  for (const Address& each : listeners)
    if (!is_free(each)) return to_string(each);
  return {};
}

}  // namespace weightmap::cli::snapshot
