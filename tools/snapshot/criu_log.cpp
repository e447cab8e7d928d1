#include "tools/snapshot/criu_log.hpp"

#include <fstream>
#include <string_view>

#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {

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
