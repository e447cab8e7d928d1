// Notifies systemd, or another service manager (sd_notify).
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace weightmap::cli::hold {

// Does nothing if $NOTIFY_SOCKET is unset. Never waits and never fails.
class ServiceManager {
 public:
  ServiceManager();

  void ready(const std::string& status) const;
  void reloading(const std::string& status) const;
  void stopping() const;
  void alive() const;

  // The interval of alive(): half of $WATCHDOG_USEC; nullopt without a watchdog.
  std::optional<std::chrono::microseconds> alive_interval() const noexcept {
    return alive_interval_;
  }

 private:
  void notify(const std::string& state) const;

  std::string socket_;  // empty: none
  std::optional<std::chrono::microseconds> alive_interval_;
};

}  // namespace weightmap::cli::hold
