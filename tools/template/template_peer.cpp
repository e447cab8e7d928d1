#include "tools/template/template_peer.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "runtime/base/try.hpp"

namespace weightmap::cli::templates {
namespace {

constexpr timeval patience{30, 0};

bool receive_all(int socket, void* bytes, std::size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = ::recv(socket, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool send_all(int socket, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// Sends a number, and the three standard streams beside it.
bool send_with_streams(int socket, std::uint32_t number) {
  const std::array streams = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof streams)> control{};
  iovec part{&number, sizeof number};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(header), streams.data(), sizeof streams);
  ssize_t sent = 0;
  while ((sent = ::sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent == static_cast<ssize_t>(sizeof number);
}

tl::unexpected<Error> has_ended() {
  return failure(ErrorCode::io, "the template has ended, or does not answer");
}

}  // namespace

Result<TemplatePeer> TemplatePeer::connect(const std::filesystem::path& folder) {
  const auto none = failure(ErrorCode::not_found, "there is no template");
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return none;
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Which is short enough for any folder.
  const std::string path = "/proc/self/fd/" + std::to_string(opened.get()) + "/socket";
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  if (socket.get() < 0 || ::connect(socket.get(), general, sizeof address) != 0) return none;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid())
    return failure(ErrorCode::io, "what listens in its place is of user " +
                                      std::to_string(peer.uid) + ", and is not believed");
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return TemplatePeer(std::move(socket), peer.pid);
}

Result<TemplateManifest> TemplatePeer::manifest() const {
  std::uint32_t size = 0;
  if (!receive_all(socket_.get(), &size, sizeof size)) return has_ended();
  if (size > max_manifest_bytes)
    return failure(ErrorCode::limit_exceeded, "what the template says has " + std::to_string(size) +
                                                  " bytes, at most " +
                                                  std::to_string(max_manifest_bytes) + " are read");
  std::string text(size, '\0');
  if (!receive_all(socket_.get(), text.data(), size)) return has_ended();
  return parse_template(text);
}

Result<pid_t> TemplatePeer::go_on(const std::string& variables) const {
  std::uint32_t process = 0;
  if (!send_with_streams(socket_.get(), static_cast<std::uint32_t>(variables.size())) ||
      !send_all(socket_.get(), variables.data(), variables.size()) ||
      !receive_all(socket_.get(), &process, sizeof process))
    return has_ended();
  return static_cast<pid_t>(process);
}

std::optional<int> TemplatePeer::status() const {
  int status = 0;
  if (!receive_all(socket_.get(), &status, sizeof status)) return std::nullopt;
  return status;
}

void TemplatePeer::end_template() const { ::kill(process_, SIGTERM); }

}  // namespace weightmap::cli::templates
