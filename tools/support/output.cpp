#include "tools/support/output.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace weightmap::cli {

void Output::write(std::string_view text) noexcept {
  if (failed() || text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) error_ = errno;
}

void Output::write(std::span<const std::byte> bytes) noexcept {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

bool Output::reader_left() const noexcept { return error_ == EPIPE; }

Result<void> Output::finish() {
  if (!failed() && std::fflush(stdout) != 0) error_ = errno;
  if (!failed() || reader_left()) return {};
  return failure(ErrorCode::io,
                 "cannot write to standard output: " + std::generic_category().message(error_));
}

void say(const std::string& what) { std::fprintf(stderr, "weightmap: %s\n", what.c_str()); }

}  // namespace weightmap::cli
