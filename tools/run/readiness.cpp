#include "tools/run/readiness.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "tools/support/descriptor.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

using std::chrono::seconds;

// A model may be made without any file for a while.
constexpr seconds stillness{4};
constexpr seconds longest_start{600};

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Returns a connected socket; none if nobody listens.
Descriptor connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Descriptor socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0));
    const timeval patience{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) return socket;
  }
  return {};
}

// True for an answer of 200 to 299.
bool answers_well(const ReadyUrl& url) {
  const Descriptor socket = connect_to(url.host, url.port);
  if (socket.get() < 0) return false;
  const std::string request =
      "GET " + url.path + " HTTP/1.0\r\nHost: " + url.host + ":" + url.port + "\r\n\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return false;
  char answer[16] = {};
  const ssize_t got = ::recv(socket.get(), answer, sizeof answer - 1, MSG_WAITALL);
  const std::string_view text(answer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  // The rest is read, too: a server that cannot send it logs an error.
  char rest[4096];
  for (int pieces = 0; pieces < 64 && ::recv(socket.get(), rest, sizeof rest, 0) > 0;) ++pieces;
  return text.starts_with("HTTP/1.") && text.size() > 9 && text[9] == '2';
}

}  // namespace

Result<Ready> parse_ready(const std::string& text) {
  constexpr std::string_view http = "http://";
  if (text.starts_with(http)) {
    const std::string rest = text.substr(http.size());
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const std::size_t colon = rest.rfind(':', slash);
    ReadyUrl url{rest.substr(0, std::min(colon, slash)), "80", rest.substr(slash)};
    if (colon != std::string::npos) url.port = rest.substr(colon + 1, slash - colon - 1);
    if (url.path.empty()) url.path = "/";
    if (!url.host.empty() && is_number(url.port)) return Ready(url);
  } else if (is_number(text)) {
    return Ready(ReadyPort{text});
  } else if (text.ends_with('s') && is_number(text.substr(0, text.size() - 1))) {
    return Ready(seconds(std::stol(text)));
  } else if (text.find('/') != std::string::npos) {
    return Ready(ReadyFile{text});
  }
  return failure(
      ErrorCode::invalid_argument,
      "--ready is \"" + printable(text) +
          "\", expected http://HOST:PORT/PATH, a port, a number of seconds as in 30s, or "
          "the path of a file with a slash in it");
}

bool Readiness::is_over(std::uint64_t activity, Clock::time_point now) {
  if (activity != activity_) changed_ = now;
  activity_ = activity;
  gave_up_ = now - began_ >= longest_start;
  if (gave_up_) return true;
  std::error_code ignored;
  return std::visit(
      Overloaded{
          [&](std::monostate) { return now - changed_ >= stillness; },
          [&](seconds time) { return now - began_ >= time; },
          [&](const ReadyFile& file) { return std::filesystem::exists(file.path, ignored); },
          [&](const ReadyPort& port) { return connect_to("localhost", port.port).get() >= 0; },
          [&](const ReadyUrl& url) { return answers_well(url); }},
      ready_);
}

Readiness::Clock::time_point Readiness::end(Clock::time_point now) const noexcept {
  return std::holds_alternative<std::monostate>(ready_) ? changed_ : now;
}

}  // namespace weightmap::cli::start
