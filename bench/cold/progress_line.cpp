#include "bench/cold/progress_line.hpp"

#include <unistd.h>

#include <cstdio>

namespace weightmap::cli::bench {

ProgressLine::ProgressLine(std::size_t steps)
    : enabled_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

ProgressLine::~ProgressLine() {
  if (enabled_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::begin(const std::string& what) {
  ++done_;
  if (enabled_) std::fprintf(stderr, "\r[%zu of %zu] %s\x1b[K", done_, steps_, what.c_str());
}

}  // namespace weightmap::cli::bench
