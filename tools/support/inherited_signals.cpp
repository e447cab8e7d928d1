#include "tools/support/inherited_signals.hpp"

#include <csignal>

namespace weightmap::cli {
namespace {

using Handler = void (*)(int);
Handler inherited_pipe = SIG_DFL, inherited_size_limit = SIG_DFL;

}  // namespace

void ignore_write_signals() noexcept {
  inherited_pipe = std::signal(SIGPIPE, SIG_IGN);
  inherited_size_limit = std::signal(SIGXFSZ, SIG_IGN);
}

void restore_write_signals() noexcept {
  std::signal(SIGPIPE, inherited_pipe);
  std::signal(SIGXFSZ, inherited_size_limit);
}

}  // namespace weightmap::cli
