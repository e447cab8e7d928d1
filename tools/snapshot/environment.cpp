#include "tools/snapshot/environment.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/snapshot/checksum.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

// Of systemd.exec(5), sh(1), sshd(8) and terminals.
constexpr std::array<std::string_view, 21> of_a_session = {"_",
                                                           "COLUMNS",
                                                           "DBUS_SESSION_BUS_ADDRESS",
                                                           "INVOCATION_ID",
                                                           "JOURNAL_STREAM",
                                                           "LINES",
                                                           "LISTEN_FDNAMES",
                                                           "LISTEN_PID",
                                                           "LS_COLORS",
                                                           "MAINPID",
                                                           "MANAGERPID",
                                                           "MEMORY_PRESSURE_WATCH",
                                                           "OLDPWD",
                                                           "PWD",
                                                           "SHLVL",
                                                           "SSH_TTY",
                                                           "SYSTEMD_EXEC_PID",
                                                           "TERM",
                                                           "WATCHDOG_PID",
                                                           "WINDOWID",
                                                           "XDG_SESSION_ID"};

bool is_of_a_session(std::string_view name) {
  return name.starts_with("SSH_") ||
         std::find(of_a_session.begin(), of_a_session.end(), name) != of_a_session.end();
}

}  // namespace

HashedEnvironment hashed_environment(const char* const* environment,
                                     const std::vector<std::string>& new_variables) {
  HashedEnvironment hashed;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = entry.substr(0, equals);
    const bool is_new =
        std::find(new_variables.begin(), new_variables.end(), name) != new_variables.end();
    if (!is_new && !is_of_a_session(name))
      hashed[printable(name)] = hexadecimal(checksum_of(entry.substr(equals)));
  }
  return hashed;
}

std::string first_difference(const HashedEnvironment& then, const HashedEnvironment& now) {
  for (const auto& [name, hash] : now) {
    const auto found = then.find(name);
    if (found == then.end()) return "the environment has " + name + ", and had none";
    if (found->second != hash) return "the environment has another " + name;
  }
  for (const auto& [name, hash] : then)
    if (!now.contains(name)) return "the environment has no " + name + ", and had one";
  return {};
}

}  // namespace weightmap::cli::snapshot
