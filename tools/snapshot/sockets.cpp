#include "tools/snapshot/sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// One of the descriptors of a socket.
struct HeldSocket {
  pid_t process = 0;
  int descriptor = -1;
};

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

// Returns the sockets of processes by their inodes.
std::map<std::uint64_t, HeldSocket> held_sockets(const start::ProcessTree& processes) {
  std::map<std::uint64_t, HeldSocket> sockets;
  for (const pid_t process : processes.members()) add_sockets_of(process, sockets);
  return sockets;
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

bool is_used(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::copy(path.begin(), path.end(), address.sun_path);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return true;
  return errno == EAGAIN || errno == EPROTOTYPE;  // a full queue, a socket of another kind
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

std::vector<std::string> socket_files_of(const start::ProcessTree& processes) {
  const std::map<std::uint64_t, HeldSocket> held = held_sockets(processes);
  std::set<std::string> files;  // a connection that was accepted has the name, too
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    NamedSocket found = parse_named_socket_line(line);
    if (found.path.starts_with('/') && !found.path.starts_with("/dev/shm/") &&
        held.contains(found.inode))
      files.insert(std::move(found.path));
  }
  return {files.begin(), files.end()};
}

std::string first_used(const std::vector<std::string>& files) {
  const auto found = std::find_if(files.begin(), files.end(), is_used);
  return found == files.end() ? std::string() : *found;
}

}  // namespace weightmap::cli::snapshot
