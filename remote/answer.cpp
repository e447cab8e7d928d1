#include "remote/answer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/bytes/number.hpp"

namespace weightmap::remote {
namespace {

std::string_view without_spaces(std::string_view text) noexcept {
  constexpr std::string_view spaces = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(spaces), text.size());
  const std::size_t end = text.find_last_not_of(spaces);
  return text.substr(begin, end == text.npos ? 0 : end + 1 - begin);
}

bool equal_ignoring_case(std::string_view text, std::string_view lower) noexcept {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char c, char l) {
    return (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) == l;
  });
}

bool take_number(std::string_view& text, std::uint64_t* number) noexcept {
  const std::optional<std::uint64_t> taken = bytes::take_number(text);
  *number = taken.value_or(0);
  return taken.has_value();
}

bool take_text(std::string_view& text, std::string_view expected) noexcept {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

std::optional<ContentRange> ContentRange::parse(std::string_view text) noexcept {
  ContentRange range;
  std::uint64_t last = 0;
  if (!take_text(text, "bytes ")) return std::nullopt;
  if (take_text(text, "*/"))
    return take_number(text, &range.total) && text.empty() ? std::optional(range) : std::nullopt;
  const bool is_whole = take_number(text, &range.first) && take_text(text, "-") &&
                        take_number(text, &last) && take_text(text, "/") &&
                        take_number(text, &range.total) && text.empty();
  if (!is_whole || last < range.first || last >= range.total) return std::nullopt;
  range.length = last - range.first + 1;
  return range;
}

void Answer::take(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    *this = {};
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line = without_spaces(line);
    std::uint64_t number = 0;
    if (take_number(line, &number) && number < 1000) status = static_cast<long>(number);
    return;
  }
  const std::array<std::pair<std::string_view, std::string*>, 10> fields = {{
      {"content-range", &content_range},
      {"content-encoding", &content_encoding},
      {"content-length", &content_length},
      {"content-type", &content_type},
      {"etag", &etag},
      {"last-modified", &last_modified},
      {"location", &location},
      {"x-amz-version-id", &version_id},
      {"x-amz-checksum-sha256", &checksum_sha256},
      {"x-amz-checksum-type", &checksum_type},
  }};
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return;
  for (const auto& [name, value] : fields) {
    if (!equal_ignoring_case(line.substr(0, colon), name)) continue;
    if (!value->empty()) *value += ", ";
    *value += without_spaces(line.substr(colon + 1));
  }
}

bool is_strong_tag(std::string_view tag) noexcept {
  if (tag.size() < 2 || tag.front() != '"' || tag.back() != '"') return false;
  return std::all_of(tag.begin() + 1, tag.end() - 1,
                     [](char c) { return c > 0x20 && c < 0x7F && c != '"'; });
}

}  // namespace weightmap::remote
