// One port, and a socket for each of the processes that listen on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace serving {

// The kernel spreads connections over the sockets. Each has a queue of its own, which waits while
// its worker is being replaced, so connections that were not accepted yet are not lost.
class ListeningSockets {
 public:
  // IPv4. Port 0 takes a free one. Fails with io if another program listens there.
  static weightmap::Result<ListeningSockets> open(const std::string& address, std::uint16_t port,
                                                  std::size_t count);
  ListeningSockets(ListeningSockets&&) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  std::uint16_t port() const noexcept { return port_; }
  const std::vector<int>& descriptors() const noexcept { return descriptors_; }

 private:
  ListeningSockets() = default;
  std::uint16_t port_ = 0;
  std::vector<int> descriptors_;  // owned
};

}  // namespace serving
