#include "tools/snapshot/criu.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>

#include "tools/run/program.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr int oldest_version = 4;

// Of a shared file system of the machine; a file that is larger and has no name is no scratch file.
constexpr const char* largest_nameless_file = "64M";

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "re"), &::pclose);
  std::string text(256, '\0');
  text.resize(pipe ? std::fread(text.data(), 1, text.size(), pipe.get()) : 0);
  return text;
}

std::vector<std::string> common_words(const fs::path& criu, const char* action,
                                      const fs::path& image, const fs::path& log,
                                      bool keeps_connections) {
  return {criu.native(), action, "--images-dir", image.native(), "--log-file", log.native(), "-v1",
          "--file-locks", keeps_connections ? "--tcp-established" : "--tcp-close",
          // Both ends of a connection that goes on stand still, so nothing has to be kept from
          // them, for which criu would need iptables.
          "--network-lock=skip", "--ext-unix-sk", "--manage-cgroups=ignore"};
}

}  // namespace

fs::path find_criu() {
  if (const char* const given = std::getenv("WEIGHTMAP_CRIU"))
    return ::access(given, X_OK) == 0 ? fs::path(given) : fs::path();
  fs::path found = start::find_program("criu");
  for (const char* const place : {"/usr/local/sbin/criu", "/usr/sbin/criu", "/sbin/criu"})
    if (found.empty() && ::access(place, X_OK) == 0) found = place;
  return found;
}

Result<std::string> criu_version(const fs::path& criu) {
  if (criu.empty())
    return failure(ErrorCode::not_found,
                   "there is no program criu, which makes and restores snapshots; "
                   "scripts/install-criu of weightmap installs it");
  const std::string text = output_of(quoted(criu.native()) + " --version 2>/dev/null");
  constexpr std::string_view name = "Version: ";
  const std::size_t at = text.find(name);
  if (at == std::string::npos)
    return failure(ErrorCode::unsupported, printable(criu.native()) + " tells no version");
  const std::string version = text.substr(at + name.size(), text.find('\n', at) - at - name.size());
  if (std::atoi(version.c_str()) < oldest_version)
    return failure(ErrorCode::unsupported,
                   printable(criu.native()) + " has version " + printable(version) +
                       ", expected 4.0 or later; scripts/install-criu of weightmap builds one");
  return printable(version);
}

Result<void> check_criu(const fs::path& criu) {
  const std::string text = output_of(quoted(criu.native()) + " check 2>&1 | grep -v '^Warn'");
  if (text.find("Looks good") != std::string::npos) return {};
  return failure(ErrorCode::unsupported, printable(criu.native()) + " check: " +
                                             printable(text.substr(0, text.find('\n'))));
}

std::vector<std::string> dump_words(const fs::path& criu, pid_t root, const fs::path& image,
                                    const fs::path& log, const fs::path& script,
                                    bool keeps_connections) {
  std::vector<std::string> words = common_words(criu, "dump", image, log, keeps_connections);
  words.insert(
      words.end(),
      {"--tree", std::to_string(root), "--leave-running", "--link-remap",
       "--skip-in-flight",  // connections that wait for accept(): the first process has them
       "--ghost-limit", largest_nameless_file, "--action-script", script.native()});
  return words;
}

std::vector<std::string> restore_words(const fs::path& criu, const fs::path& image,
                                       const fs::path& work, const fs::path& script,
                                       const std::array<std::uint64_t, 2>& pipes, int first_output,
                                       bool keeps_connections) {
  std::vector<std::string> words =
      common_words(criu, "restore", image, work / "restore.log", keeps_connections);
  words.insert(words.end(), {"--work-dir", work.native(), "--restore-detached", "--action-script",
                             script.native()});
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    words.push_back("--inherit-fd");
    words.push_back("fd[" + std::to_string(first_output + static_cast<int>(i)) + "]:pipe:[" +
                    std::to_string(pipes[i]) + "]");
  }
  return words;
}

Result<fs::path> write_action_script(const fs::path& path, const char* program) {
  std::ofstream(path) << program;
  if (::chmod(path.c_str(), 0700) == 0) return path;
  return failure(ErrorCode::io, printable(path.native()) + ": " + std::strerror(errno));
}

std::string first_error_in(const std::filesystem::path& log) {
  std::ifstream file(log);
  constexpr std::string_view mark = "Error (";
  // It goes on without, and says so each time.
  constexpr std::string_view harmless = "rlimit: Can't setup RLIMIT_NOFILE for self";
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(mark);
    const std::size_t text = at == std::string::npos ? at : line.find("): ", at);
    if (text != std::string::npos && line.find(harmless) == std::string::npos)
      return printable(line.substr(text + 3));
  }
  return {};
}

}  // namespace weightmap::cli::snapshot
