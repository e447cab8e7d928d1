#include "tools/snapshot/surroundings.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "tools/snapshot/image_files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

std::string value_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  return colon == std::string::npos ? "" : line.substr(std::min(line.size(), colon + 2));
}

bool begins_with(const std::string& line, std::string_view x86, std::string_view arm) {
  return line.starts_with(x86) || line.starts_with(arm);
}

// Of the first processor: "flags" on x86, "Features" on Arm.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, features;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (begins_with(line, "model name", "CPU part")) name = value_of(line);
    if (begins_with(line, "flags", "Features")) features = value_of(line);
  }
  return name + ", features " + hexadecimal(checksum_of(features));
}

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

namespace fs = std::filesystem;

void add(std::string_view text, std::vector<NamedLink>& links) {
  if (text.empty() || text.size() >= PATH_MAX || text.find('\0') != std::string_view::npos) return;
  std::error_code error;
  const fs::path path = fs::absolute(fs::path(text), error);
  const fs::path target = error ? fs::path() : fs::canonical(path, error);
  if (!error && target != path.lexically_normal()) links.push_back({path, target});
}

}  // namespace

Machine this_machine() {
  utsname names{};
  ::uname(&names);
  return {std::string(names.release) + " " + names.version, processor()};
}

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

std::vector<NamedLink> named_links(const std::vector<std::string>& words,
                                   const char* const* environment) {
  std::vector<NamedLink> links;
  const auto add_text_of = [&links](std::string_view entry) {
    if (const std::size_t equals = entry.find('='); equals != std::string_view::npos)
      add(entry.substr(equals + 1), links);
  };
  for (const std::string& word : words) {
    add(word, links);
    add_text_of(word);
  }
  for (; *environment != nullptr; ++environment) add_text_of(*environment);
  return links;
}

std::string first_moved(const std::vector<NamedLink>& links) {
  for (const NamedLink& then : links) {
    std::error_code error;
    const fs::path now = fs::canonical(then.path, error);
    if (error) return printable(then.path) + " is gone";
    if (now != then.target)
      return printable(then.path) + " leads to " + printable(now.native()) + ", and led to " +
             printable(then.target);
  }
  return {};
}

}  // namespace weightmap::cli::snapshot
