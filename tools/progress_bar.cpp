#include "tools/progress_bar.hpp"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "tools/text.hpp"

namespace weightmap::cli {

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
  std::fprintf(stderr, "\r[%s] %3.0f%%  %s of %s\x1b[K", bar.c_str(), part * 100,
               human_bytes(done).c_str(), human_bytes(all).c_str());
}

}  // namespace weightmap::cli
