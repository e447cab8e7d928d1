// What systemd, or whatever started us, wants to be told (sd_notify).
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace weightmap::cli::hold {

// Tells nobody where $NOTIFY_SOCKET is not set. Never waits, and never fails: who does not listen
// is not told.
class ServiceManager {
 public:
  ServiceManager();

  void ready(const std::string& status) const;
  void reloading(const std::string& status) const;
  void stopping() const;
  void alive() const;

  // How often alive() is wanted: half of $WATCHDOG_USEC; nullopt where nobody watches this process.
  std::optional<std::chrono::microseconds> alive_interval() const noexcept {
    return alive_interval_;
  }

 private:
  void notify(const std::string& state) const;

  std::string socket_;  // empty: nobody
  std::optional<std::chrono::microseconds> alive_interval_;
};

}  // namespace weightmap::cli::hold
