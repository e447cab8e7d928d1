#include "tools/run/program.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

constexpr int exit_not_found = 127;
constexpr int exit_not_executable = 126;

}  // namespace

fs::path find_program(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos) return fs::absolute(name, error);
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (true) {
    const std::size_t colon = rest.find(':');
    const fs::path program = fs::path(rest.substr(0, colon)) / name;
    if (::access(program.c_str(), X_OK) == 0 && !fs::is_directory(program, error))
      return fs::absolute(program, error);
    if (colon == std::string_view::npos) return {};
    rest.remove_prefix(colon + 1);
  }
}

int become(std::vector<std::string> command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  restore_write_signals();
  ::execvp(words[0], words.data());
  const int error = errno;
  std::fprintf(stderr, "weightmap: cannot run %s: %s\n", printable(words[0]).c_str(),
               std::strerror(error));
  return error == ENOENT ? exit_not_found : exit_not_executable;
}

void close_all_above(int kept) noexcept {
  if (::syscall(SYS_close_range, kept + 1, ~0U, 0) == 0) return;
  const long most = ::sysconf(_SC_OPEN_MAX);
  for (int descriptor = kept + 1; descriptor < most; ++descriptor) ::close(descriptor);
}

}  // namespace weightmap::cli::start
