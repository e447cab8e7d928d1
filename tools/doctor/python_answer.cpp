#include "tools/doctor/python_answer.hpp"

#include <array>
#include <cstdio>

#include "tools/doctor/findings.hpp"

namespace weightmap::cli::doctor {

std::optional<std::string> python_answer(const std::string& python, std::string_view program) {
  const std::string command =
      "WEIGHTMAP_PATCH=1 " + quoted(python) + " -c '" + std::string(program) + "' 2>/dev/null";
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), output))
    text.append(piece.data(), count);
  if (::pclose(output) != 0) return std::nullopt;
  return text;
}

std::string next_line(std::string& text) {
  const std::size_t end = text.find('\n');
  std::string line = text.substr(0, end);
  text.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

}  // namespace weightmap::cli::doctor
