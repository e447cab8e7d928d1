#include "examples/serving/listening_sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace serving {
namespace {

using weightmap::Error;
using weightmap::ErrorCode;
using weightmap::failure;
using weightmap::Result;

tl::unexpected<Error> system_failure(const std::string& what) {
  const int reason = errno;
  return tl::unexpected<Error>({ErrorCode::io,
                                what + ": " + std::system_category().message(reason),
                                Error::no_offset,
                                {},
                                reason});
}

bool set(int socket, int level, int option) {
  const int on = 1;
  return setsockopt(socket, level, option, &on, sizeof(on)) == 0;
}

bool bind_to(int socket, const sockaddr_in& place) {
  return bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0;
}

// Sockets that share a port also share it with those of another run of this program. So a socket
// that does not share asks first; port 0 becomes the one that it got.
Result<sockaddr_in> free_place(sockaddr_in place) {
  const int asking = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (asking < 0) return system_failure("a socket");
  socklen_t size = sizeof(place);
  const bool is_free = set(asking, SOL_SOCKET, SO_REUSEADDR) && bind_to(asking, place) &&
                       getsockname(asking, reinterpret_cast<sockaddr*>(&place), &size) == 0;
  if (!is_free) {
    auto failed = system_failure("port " + std::to_string(ntohs(place.sin_port)));
    close(asking);
    return failed;
  }
  close(asking);
  return place;
}

// Accepted connections inherit TCP_NODELAY, without which the end of an answer would wait for the
// client to acknowledge its beginning.
bool listen_at(int socket, const sockaddr_in& place) {
  return set(socket, SOL_SOCKET, SO_REUSEADDR) && set(socket, SOL_SOCKET, SO_REUSEPORT) &&
         set(socket, IPPROTO_TCP, TCP_NODELAY) && bind_to(socket, place) &&
         listen(socket, SOMAXCONN) == 0;
}

}  // namespace

Result<ListeningSockets> ListeningSockets::open(const std::string& address, std::uint16_t port,
                                                std::size_t count) {
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &wanted.sin_addr) != 1)
    return failure(ErrorCode::invalid_argument, address + " is no IPv4 address");
  const auto place = free_place(wanted);
  if (!place) return tl::unexpected<Error>(place.error());

  ListeningSockets sockets;
  sockets.port_ = ntohs(place->sin_port);
  while (sockets.descriptors_.size() < count) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return system_failure("a socket");
    sockets.descriptors_.push_back(descriptor);
    if (!listen_at(descriptor, *place))
      return system_failure("port " + std::to_string(sockets.port_));
  }
  return sockets;
}

ListeningSockets::~ListeningSockets() {
  for (int descriptor : descriptors_) close(descriptor);
}

}  // namespace serving
