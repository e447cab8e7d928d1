#include "weightmap/sha256_sums.hpp"

#include <fstream>

#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/sha256.hpp"

namespace weightmap {

std::optional<std::array<std::byte, 32>> sha256_of_hex(std::string_view hex) noexcept {
  return bytes::parse_sha256(hex);
}

Result<Sha256Sums> read_sha256_sums(const std::filesystem::path& file) {
  constexpr std::size_t hex_digits = 64;
  std::ifstream stream(file);
  if (!stream) return about_file({ErrorCode::io, "cannot be read"}, file);
  Sha256Sums sums;
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    const auto sum = bytes::parse_sha256(std::string_view(line).substr(0, hex_digits));
    const bool is_line = sum && line.size() > hex_digits + 2 && line[hex_digits] == ' ' &&
                         (line[hex_digits + 1] == ' ' || line[hex_digits + 1] == '*');
    if (!is_line)
      return about_file(
          {ErrorCode::invalid_argument,
           "line " + std::to_string(number) + " is not \"SHA256  NAME\", as sha256sum prints it"},
          file);
    std::string name = line.substr(hex_digits + 2);
    if (name.starts_with("./")) name.erase(0, 2);
    sums[name] = *sum;
  }
  if (sums.empty()) return about_file({ErrorCode::invalid_argument, "lists no file"}, file);
  return sums;
}

}  // namespace weightmap
