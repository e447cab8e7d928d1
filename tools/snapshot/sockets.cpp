#include "tools/snapshot/sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

void add_sockets_of(pid_t process, std::map<std::uint64_t, HeldSocket>& sockets) {
  std::error_code error;
  const fs::path folder = "/proc/" + std::to_string(process) + "/fd";
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code closed;
    unsigned long long inode = 0;
    const fs::path target = fs::read_symlink(at->path(), closed);
    if (std::sscanf(target.c_str(), "socket:[%llu]", &inode) == 1)
      sockets[inode] = {process, std::atoi(at->path().filename().c_str())};
  }
}

// True for a socket that shares its port by intention (socket(7)).
bool shares_port(const HeldSocket& held) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, held.process, 0)));
  const Descriptor socket(
      static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), held.descriptor, 0)));
  int is_shared = 0;
  socklen_t size = sizeof is_shared;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &is_shared, &size) == 0 &&
         is_shared != 0;
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
  // Connections that end do not count. criu shares the ports of all that it restores, so that only
  // a socket that does not share finds one in use.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (listener.is_shared) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0 &&
         ::listen(socket.get(), 1) == 0;
}

}  // namespace

std::map<std::uint64_t, HeldSocket> held_sockets(const start::ProcessTree& processes) {
  std::map<std::uint64_t, HeldSocket> sockets;
  for (const pid_t process : processes.members()) add_sockets_of(process, sockets);
  return sockets;
}

std::vector<Socket> sockets_of(const start::ProcessTree& processes) {
  const std::map<std::uint64_t, HeldSocket> held = held_sockets(processes);
  std::vector<Socket> sockets;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      Socket found = parse_socket_line(line);
      const auto holder = held.find(found.inode);
      if (found.state == Socket::other || holder == held.end()) continue;
      found.local.is_shared = found.state == Socket::listening && shares_port(holder->second);
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
