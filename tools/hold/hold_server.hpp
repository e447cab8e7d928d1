// Serves the clients of a daemon: each line gets one line in answer.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/hold/hold_socket.hpp"

namespace weightmap::cli::hold {

// Single-threaded, and never blocked by a client: one that does not read its answer gets no further
// answers until it does, and one with too long a line gets an error and is dropped. If there are
// too many clients, or no descriptor is left, the client that has been idle longest is dropped.
class HoldServer {
 public:
  static constexpr std::size_t longest_line = std::size_t{64} << 10;
  static constexpr std::size_t most_clients = 64;

  // `answer` maps a line to a line, both without the line feed.
  using Answer = std::function<std::string(std::string_view)>;
  HoldServer(const HoldSocket& socket, Answer answer)
      : socket_(socket), answer_(std::move(answer)) {}

  // Serves clients until the time is over or a signal comes.
  void serve_for(std::chrono::milliseconds time);

 private:
  struct Client {
    Descriptor descriptor;
    std::string input;        // received and not answered yet
    std::string output;       // to be sent
    bool is_leaving = false;  // drop it once the output is sent
    bool is_gone = false;
    std::chrono::steady_clock::time_point last_heard;
  };
  void wait(std::chrono::milliseconds time);
  void accept_all();
  void drop_quietest();
  void read_from(Client& client);
  void answer_lines(Client& client);
  void write_to(Client& client);

  const HoldSocket& socket_;
  Answer answer_;
  std::vector<Client> clients_;
  bool is_deaf_ = false;  // until the next serve_for(): no client can be accepted
};

}  // namespace weightmap::cli::hold
