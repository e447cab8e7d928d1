#include "tools/output/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

// Returns ", 2.1 GiB/s, 3 s left"; empty at the beginning.
std::string speed(std::uint64_t done, std::uint64_t all,
                  std::chrono::steady_clock::duration since_start) {
  const double seconds = std::chrono::duration<double>(since_start).count();
  if (done == 0 || seconds < 0.2) return {};
  const double rate = static_cast<double>(done) / seconds;
  const double left = static_cast<double>(all - done) / rate;
  return fmt::format(", {}/s, {:.0f} s left", human_bytes(static_cast<std::uint64_t>(rate)), left);
}

}  // namespace

std::size_t terminal_width() noexcept {
  constexpr std::size_t usual = 80;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return usual;
  return size.ws_col == 0 ? usual : size.ws_col;
}

ProgressBar::ProgressBar() : enabled_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::uint64_t done, std::uint64_t all) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || all == 0 || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  constexpr double cells = 30;
  const double part = static_cast<double>(done) / static_cast<double>(all);
  const auto full = static_cast<std::size_t>(part * cells);
  const std::string bar = std::string(full, '#') + std::string(30 - full, '.');
  std::fprintf(stderr, "\r[%s] %3.0f%%  %s of %s%s\x1b[K", bar.c_str(), part * 100,
               human_bytes(done).c_str(), human_bytes(all).c_str(),
               speed(done, all, now - began_).c_str());
}

}  // namespace weightmap::cli
