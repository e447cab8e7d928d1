#include "tools/hold/hold_socket.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/base/try.hpp"
#include "runtime/system/process/runtime_directory.hpp"
#include "tools/hold/system_failure.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

constexpr int backlog = 64;

std::string named(const std::filesystem::path& path) { return printable(path.native()); }

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.empty() || text.size() >= sizeof address.sun_path || text.find('\0') != text.npos)
    return failure(ErrorCode::invalid_argument,
                   "a socket's path has 1 to " + std::to_string(sizeof address.sun_path - 1) +
                       " bytes, not " + std::to_string(text.size()) + ": " + printable(text));
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

Descriptor new_socket(int flags) {
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

// Returns 0 or errno.
int bind_to(const Descriptor& socket, const sockaddr_un& address) noexcept {
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  return ::bind(socket.get(), general, sizeof address) == 0 ? 0 : errno;
}

int connect_with(const Descriptor& socket, const sockaddr_un& address) noexcept {
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(socket.get(), general, sizeof address) == 0 ? 0 : errno;
}

// True if the other end is this user or root.
bool is_trusted(const Descriptor& socket) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

// True if a daemon listens there, even one that is too busy for another client.
bool is_answered(const sockaddr_un& address) noexcept {
  const Descriptor socket = new_socket(SOCK_NONBLOCK);
  const int error = connect_with(socket, address);
  return error == 0 || error == EAGAIN || error == EINPROGRESS;
}

// While the lock is held, no other daemon creates or replaces a socket in this folder.
Result<Descriptor> lock_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return system_failure("open the folder " + named(folder), errno);
  // Other daemons hold it for a moment only.
  for (int i = 0; i < 200; ++i) {
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) return opened;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return system_failure("lock the folder " + named(folder), errno);
}

// Removes a socket without a listener.
Result<void> remove_stale(const std::filesystem::path& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return system_failure("look at " + named(path), errno);
  if (!S_ISSOCK(status.st_mode))
    return failure(ErrorCode::io, named(path) + " exists and is not a socket");
  if (is_answered(address))
    return failure(ErrorCode::io, "a daemon answers already on " + named(path) +
                                      "; weightmap hold --add FILE asks it to hold one more");
  if (::unlink(path.c_str()) != 0) return system_failure("remove " + named(path), errno);
  return {};
}

}  // namespace

Result<std::filesystem::path> default_socket_path() {
  Result<std::filesystem::path> folder = runtime_directory();
  if (folder) *folder /= "hold.sock";
  return folder;
}

Result<HoldSocket> HoldSocket::listen(const std::filesystem::path& path) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  TRY_ASSIGN(const Descriptor folder, lock_folder_of(path));
  Descriptor socket = new_socket(SOCK_NONBLOCK);
  // The file gets the mode that the socket has at bind().
  if (socket.get() < 0 || ::fchmod(socket.get(), 0600) != 0)
    return system_failure("make a socket", errno);
  int error = bind_to(socket, address);
  if (error == EADDRINUSE) {
    TRY(remove_stale(path, address));
    error = bind_to(socket, address);
  }
  struct stat status {};
  if (error == 0 && ::lstat(path.c_str(), &status) != 0) error = errno;
  if (error == 0 && ::listen(socket.get(), backlog) != 0) error = errno;
  if (error != 0) return system_failure("listen on " + named(path), error);
  return HoldSocket(std::move(socket), path, status.st_dev, status.st_ino);
}

HoldSocket::~HoldSocket() {
  if (descriptor_.get() < 0) return;
  struct stat status {};
  const bool is_ours =
      ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  if (is_ours) ::unlink(path_.c_str());
}

HoldSocket::Accepted HoldSocket::accept() const noexcept {
  Descriptor client(::accept4(descriptor_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool none_waits = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  if (client.get() < 0) return {Descriptor(), none_waits ? 0 : errno};
  if (is_trusted(client)) return {std::move(client)};
  return {};
}

Result<Descriptor> connect_to_keeper(const std::filesystem::path& path) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  Descriptor socket = new_socket(0);
  if (socket.get() < 0) return system_failure("make a socket", errno);
  if (const int error = connect_with(socket, address); error != 0)
    return system_failure("reach a daemon on " + named(path), error);
  if (!is_trusted(socket))
    return failure(ErrorCode::io, "what listens on " + named(path) +
                                      " is another user's, and is neither asked nor believed");
  return socket;
}

}  // namespace weightmap::cli::hold
