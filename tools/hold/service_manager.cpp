#include "tools/hold/service_manager.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::hold {
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::optional<std::int64_t> number(const std::string& text) noexcept {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::optional<std::chrono::microseconds> wanted_interval() {
  const std::optional<std::int64_t> limit = number(variable("WATCHDOG_USEC"));
  const std::string process = variable("WATCHDOG_PID");
  if (!limit || (!process.empty() && number(process) != ::getpid())) return std::nullopt;
  return std::chrono::microseconds(*limit / 2);
}

// The time of CLOCK_MONOTONIC.
std::int64_t monotonic_microseconds() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

ServiceManager::ServiceManager()
    : socket_(variable("NOTIFY_SOCKET")), alive_interval_(wanted_interval()) {}

void ServiceManager::ready(const std::string& status) const { notify("READY=1\nSTATUS=" + status); }

void ServiceManager::reloading(const std::string& status) const {
  notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(monotonic_microseconds()) +
         "\nSTATUS=" + status);
}

void ServiceManager::stopping() const { notify("STOPPING=1"); }

void ServiceManager::alive() const { notify("WATCHDOG=1"); }

void ServiceManager::notify(const std::string& state) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool is_known = !socket_.empty() && (socket_[0] == '/' || socket_[0] == '@');
  if (!is_known || socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';  // abstract name
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // An abstract name has no terminating zero byte.
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size()));
}

}  // namespace weightmap::cli::hold
