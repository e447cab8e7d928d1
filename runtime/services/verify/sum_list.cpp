#include "runtime/services/verify/sum_list.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/try.hpp"
#include "runtime/services/verify/model_signature.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t most_list_bytes = std::uint64_t{64} << 20;
constexpr std::size_t digits = 64;

// "digits  name", with "*name" for what was read as binary.
std::optional<ListedSum> plain_line(std::string_view line) {
  if (line.size() < digits + 3 || line[digits] != ' ') return std::nullopt;
  const char mode = line[digits + 1];
  const auto sum = bytes::parse_sha256(line.substr(0, digits));
  if (!sum || (mode != ' ' && mode != '*')) return std::nullopt;
  return ListedSum{std::string(line.substr(digits + 2)), *sum, {}};
}

// "SHA256 (name) = digits"
std::optional<ListedSum> tagged_line(std::string_view line) {
  constexpr std::string_view before = "SHA256 (";
  constexpr std::string_view between = ") = ";
  if (!line.starts_with(before) || line.size() <= before.size() + between.size() + digits)
    return std::nullopt;
  line.remove_prefix(before.size());
  const std::size_t name = line.size() - digits - between.size();
  const auto sum = bytes::parse_sha256(line.substr(line.size() - digits));
  if (!sum || line.substr(name, between.size()) != between) return std::nullopt;
  return ListedSum{std::string(line.substr(0, name)), *sum, {}};
}

// A name that has a backslash or a newline is written with both escaped, behind a backslash.
std::string unescaped(std::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    if (is_escape) ++i;
    name += !is_escape ? text[i] : text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
  }
  return name;
}

std::optional<ListedSum> parse_sum_line(std::string_view text) {
  const bool is_escaped = text.starts_with('\\');
  if (is_escaped) text.remove_prefix(1);
  std::optional<ListedSum> line = plain_line(text);
  if (!line) line = tagged_line(text);
  if (line && is_escaped) line->name = unescaped(line->name);
  return line;
}

Result<std::vector<ListedSum>> parse_lines(std::string_view text) {
  std::vector<ListedSum> sums;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string place = "line " + std::to_string(number);
    std::optional<ListedSum> parsed = parse_sum_line(line);
    if (!parsed)
      return failure(ErrorCode::corrupt,
                     place +
                         " is none of sha256sum's, which are 64 hexadecimal digits, two spaces and "
                         "a file's name");
    parsed->place = place;
    sums.push_back(*std::move(parsed));
  }
  return sums;
}

bool is_json(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '{';
}

}  // namespace

Result<std::vector<ListedSum>> read_sum_list(const os::File& file) {
  if (file.size() > most_list_bytes)
    return failure(ErrorCode::limit_exceeded, "has " + std::to_string(file.size()) +
                                                  " bytes, more than any list of checksums");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return is_json(text) ? read_model_signature(text) : parse_lines(text);
}

}  // namespace weightmap
