#include "tools/hold/hold_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/support/signals.hpp"

namespace weightmap::cli::hold {
namespace {

using Clock = std::chrono::steady_clock;

bool would_wait() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void HoldServer::serve_for(std::chrono::milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  is_deaf_ = false;
  do {
    wait(std::max(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()),
                  std::chrono::milliseconds(0)));
  } while (!interrupted() && Clock::now() < end);
}

void HoldServer::wait(std::chrono::milliseconds time) {
  std::vector<pollfd> watched = {
      {socket_.descriptor(), static_cast<short>(is_deaf_ ? 0 : POLLIN), 0}};
  for (const Client& client : clients_) {
    const short wanted = client.output.empty() ? POLLIN : POLLOUT;
    watched.push_back({client.descriptor.get(), wanted, 0});
  }
  if (::poll(watched.data(), watched.size(), static_cast<int>(time.count())) <= 0) return;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const short happened = watched[i + 1].revents;
    if (happened == 0) continue;
    if (clients_[i].output.empty())
      read_from(clients_[i]);
    else
      write_to(clients_[i]);
    answer_lines(clients_[i]);
  }
  std::erase_if(clients_, [](const Client& client) { return client.is_gone; });
  if (watched[0].revents != 0) accept_all();
}

void HoldServer::accept_all() {
  for (std::size_t i = 0; i < most_clients; ++i) {
    HoldSocket::Accepted accepted = socket_.accept();
    if (accepted.error_number != 0) {  // out of descriptors or memory
      is_deaf_ = clients_.empty();
      if (is_deaf_) return;
      drop_quietest();
      continue;
    }
    if (accepted.client.get() < 0) return;
    if (clients_.size() == most_clients) drop_quietest();
    clients_.push_back({std::move(accepted.client), {}, {}, false, false, Clock::now()});
  }
}

void HoldServer::drop_quietest() {
  clients_.erase(std::min_element(
      clients_.begin(), clients_.end(),
      [](const Client& a, const Client& b) { return a.last_heard < b.last_heard; }));
}

void HoldServer::read_from(Client& client) {
  std::array<char, 4096> part;
  const ssize_t got = ::recv(client.descriptor.get(), part.data(), part.size(), 0);
  if (got < 0 && would_wait()) return;
  if (got <= 0) {
    client.is_gone = true;
    return;
  }
  client.last_heard = Clock::now();
  client.input.append(part.data(), static_cast<std::size_t>(got));
}

// Answers line by line; the next line waits until the client has taken the answer.
void HoldServer::answer_lines(Client& client) {
  while (client.output.empty() && !client.is_gone) {
    const std::size_t end = client.input.find('\n');
    if (end == std::string::npos && client.input.size() <= longest_line) return;
    const std::string_view line = std::string_view(client.input).substr(0, end);
    client.is_leaving = line.size() > longest_line;
    client.output = answer_(line) + "\n";
    client.input.erase(0, client.is_leaving ? std::string::npos : end + 1);
    write_to(client);
  }
}

void HoldServer::write_to(Client& client) {
  const ssize_t sent = ::send(client.descriptor.get(), client.output.data(), client.output.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    client.is_gone = !would_wait();
    return;
  }
  client.output.erase(0, static_cast<std::size_t>(sent));
  client.is_gone = client.is_leaving && client.output.empty();
}

}  // namespace weightmap::cli::hold
