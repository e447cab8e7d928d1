#include "runtime/system/process/standard_error.hpp"

#include <unistd.h>

namespace weightmap::os {

void write_standard_error(std::string_view text) noexcept {
  if (::write(STDERR_FILENO, text.data(), text.size()) == -1) return;  // failures are ignored
}

}  // namespace weightmap::os
