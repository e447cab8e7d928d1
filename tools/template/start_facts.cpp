#include "tools/template/start_facts.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "tools/support/text.hpp"

namespace weightmap::cli::templates {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 15> compared_lines = {"Umask",
                                                             "Uid",
                                                             "Gid",
                                                             "Groups",
                                                             "NoNewPrivs",
                                                             "Seccomp",
                                                             "SigBlk",
                                                             "SigIgn",
                                                             "CapInh",
                                                             "CapPrm",
                                                             "CapEff",
                                                             "CapBnd",
                                                             "CapAmb",
                                                             "Cpus_allowed_list",
                                                             "Mems_allowed_list"};
constexpr std::size_t longest_shown = 60;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void add_status(std::map<std::string, std::string>& attributes) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string name = line.substr(0, colon);
    if (std::find(compared_lines.begin(), compared_lines.end(), name) != compared_lines.end())
      attributes[name] = line.substr(std::min(line.find_first_not_of(":\t ", colon), line.size()));
  }
}

void add_links(const fs::path& folder, std::map<std::string, std::string>& attributes) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    attributes["namespace " + at->path().filename().native()] =
        fs::read_symlink(at->path(), unreadable).native();
  }
}

void forget(const std::vector<std::string>& names, snapshot::HashedEnvironment& environment) {
  for (const std::string& name : names) environment.erase(printable(name));
}

std::string shown(const std::string& then, const std::string& now) {
  if (std::max(then.size(), now.size()) > longest_shown) return {};
  return ": " + printable(now) + ", and had " + printable(then);
}

}  // namespace

StartFacts facts_of_this(const std::vector<std::string>& words) {
  StartFacts facts;
  add_status(facts.attributes);
  add_links("/proc/self/ns", facts.attributes);
  facts.attributes["cgroup"] = text_of("/proc/self/cgroup");
  facts.attributes["limit (ulimit)"] = text_of("/proc/self/limits");
  facts.attributes["oom_score_adj"] = text_of("/proc/self/oom_score_adj");
  facts.attributes["niceness"] = std::to_string(::getpriority(PRIO_PROCESS, 0));
  std::error_code error;
  facts.attributes["working folder"] = fs::current_path(error).native();
  facts.attributes["root folder"] = fs::read_symlink("/proc/self/root", error).native();
  facts.environment = snapshot::hashed_environment(environ, {});
  facts.links = snapshot::named_links(words, environ);
  return facts;
}

std::string first_difference(const StartFacts& then, const StartFacts& now,
                             const std::vector<std::string>& new_variables) {
  for (const auto& [name, text] : now.attributes) {
    const auto found = then.attributes.find(name);
    if (found == then.attributes.end() || found->second != text)
      return "the start has another " + name +
             (found == then.attributes.end() ? std::string() : shown(found->second, text));
  }
  snapshot::HashedEnvironment before = then.environment, after = now.environment;
  forget(new_variables, before);
  forget(new_variables, after);
  const std::string variable = snapshot::first_difference(before, after);
  return variable.empty() ? snapshot::first_moved(then.links) : variable;
}

std::string beyond_standard_streams() {
  for (int number = 0; number <= STDERR_FILENO; ++number)
    if (::fcntl(number, F_GETFD) < 0) return "descriptor " + std::to_string(number) + " is closed";
  std::error_code error;
  for (fs::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    const int number = std::stoi(at->path().filename().native());
    const int flags = ::fcntl(number, F_GETFD);
    std::error_code closed;
    const fs::path file = fs::read_symlink(at->path(), closed);
    if (number > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0 && file != "/dev/null")
      return "descriptor " + std::to_string(number) + " (" + printable(file.native()) +
             ") would not reach the command";
  }
  return {};
}

}  // namespace weightmap::cli::templates
