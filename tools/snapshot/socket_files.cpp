#include "tools/snapshot/socket_files.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>

#include "tools/snapshot/socket_table.hpp"
#include "tools/snapshot/sockets.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::snapshot {
namespace {

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
