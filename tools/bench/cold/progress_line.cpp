#include "tools/bench/cold/progress_line.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace weightmap::cli::bench {

std::string progress_text(std::size_t step, std::size_t steps, double seconds,
                          const std::string& what) {
  std::string text = "[" + std::to_string(step) + " of " + std::to_string(steps);
  if (step > 1 && step <= steps) {
    const double each = seconds / static_cast<double>(step - 1);
    const double left = each * static_cast<double>(steps - step + 1);
    text += ", about " + std::to_string(static_cast<std::uint64_t>(left + 0.5)) + " s left";
  }
  return text + "] " + what;
}

ProgressLine::ProgressLine(std::size_t steps)
    : enabled_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

ProgressLine::~ProgressLine() {
  if (enabled_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::begin(const std::string& what) {
  ++done_;
  if (!enabled_) return;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began_;
  std::fprintf(stderr, "\r%s\x1b[K", progress_text(done_, steps_, time.count(), what).c_str());
}

}  // namespace weightmap::cli::bench
