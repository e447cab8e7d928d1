#include "runtime/services/archive/archive_name.hpp"

#include <algorithm>
#include <string_view>

namespace weightmap {
namespace {

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

// torch opens a path that is not ASCII as a Python file, whose archive is named "archive".
std::string archive_name(const std::filesystem::path& path, const std::string& given) {
  if (!given.empty()) return given;
  const std::string file = path.filename().native();
  const std::string stem = file.substr(0, file.rfind('.'));
  return stem.empty() || !is_ascii(path.native()) ? "archive" : stem;
}

}  // namespace weightmap
