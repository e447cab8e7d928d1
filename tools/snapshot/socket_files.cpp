#include "tools/snapshot/socket_files.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "runtime/base/try.hpp"
#include "tools/snapshot/socket_table.hpp"
#include "tools/snapshot/sockets.hpp"
#include "tools/support/descriptor.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

Result<void> make(const SocketFolder& folder) {
  const auto refused = [&folder](const std::string& why) {
    return failure(ErrorCode::io, printable(folder.path) + ": " + why);
  };
  if (::mkdir(folder.path.c_str(), 0700) == 0) {
    if (::chown(folder.path.c_str(), folder.owner, folder.group) != 0 ||
        ::chmod(folder.path.c_str(), folder.mode) != 0)
      return refused(std::strerror(errno));
    return {};
  }
  struct stat now {};
  if (errno != EEXIST || ::lstat(folder.path.c_str(), &now) != 0)
    return refused(std::strerror(errno));
  if (!S_ISDIR(now.st_mode) || now.st_uid != folder.owner)
    return refused("is no folder of user " + std::to_string(folder.owner) + " any more");
  return {};
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

std::vector<SocketFolder> folders_of(const std::vector<std::string>& files) {
  std::set<std::string> paths;
  for (const std::string& file : files) {
    std::error_code gone;
    fs::path folder = fs::canonical(fs::path(file).parent_path(), gone);
    for (; !gone && folder.has_relative_path(); folder = folder.parent_path())
      paths.insert(folder.native());
  }
  std::vector<SocketFolder> folders;
  for (const std::string& path : paths) {
    struct stat now {};
    if (::stat(path.c_str(), &now) == 0)
      folders.push_back({path, now.st_mode & 07777, now.st_uid, now.st_gid});
  }
  return folders;
}

Result<void> make_missing(const std::vector<SocketFolder>& folders) {
  for (const SocketFolder& each : folders) {
    TRY(make(each));
  }
  return {};
}

std::string first_used(const std::vector<std::string>& files) {
  const auto found = std::find_if(files.begin(), files.end(), is_used);
  return found == files.end() ? std::string() : *found;
}

}  // namespace weightmap::cli::snapshot
