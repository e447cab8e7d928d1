#include "tools/output/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace weightmap::cli {

bool prints_to_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }

std::size_t terminal_width() noexcept {
  constexpr std::size_t usual = 80;
  winsize size{};
  if (!prints_to_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return usual;
  return size.ws_col == 0 ? usual : size.ws_col;
}

}  // namespace weightmap::cli
