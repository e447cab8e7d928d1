#include <cstdlib>
#include <fstream>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/formats/sets/hub.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Without white space around it.
std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return trimmed(line);
}

std::filesystem::path token_file() {
  if (std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return path;
  const std::filesystem::path home = sets::hub_home();
  return home.empty() ? home : home / "token";
}

}  // namespace

HubAccess hub_access() {
  HubAccess access;
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    access.endpoint = std::move(endpoint);
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  access.token = trimmed(variable("HF_TOKEN"));
  access.token_from = "HF_TOKEN";
  if (!access.token.empty()) return access;
  const std::filesystem::path file = token_file();
  access.token = first_line(file);
  access.token_from = access.token.empty() ? "" : shown_name(file);
  return access;
}

}  // namespace weightmap
