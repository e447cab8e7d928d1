#include "remote/s3_page.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "remote/url.hpp"
#include "runtime/base/bytes/number.hpp"

namespace weightmap::remote {
namespace {

// What the first element of this name has in it; `rest`, if given, becomes what follows it. Those
// of S3 have no attributes, but for the root.
std::optional<std::string_view> element(std::string_view xml, std::string_view name,
                                        std::string_view* rest = nullptr) {
  const std::string begin = "<" + std::string(name) + ">", end = "</" + std::string(name) + ">";
  const std::size_t at = xml.find(begin);
  if (at == xml.npos) return std::nullopt;
  xml.remove_prefix(at + begin.size());
  const std::size_t length = xml.find(end);
  if (length == xml.npos) return std::nullopt;
  if (rest != nullptr) *rest = xml.substr(length + end.size());
  return xml.substr(0, length);
}

// "#38" or "#x26", of a character of ASCII; 0 for any other.
char numbered_character(std::string_view text) {
  const bool is_hex = text.starts_with("#x");
  text.remove_prefix(std::min<std::size_t>(text.size(), is_hex ? 2 : 1));
  const std::uint64_t code = bytes::number(text, is_hex ? 16 : 10).value_or(0);
  return code < 0x80 ? static_cast<char>(code) : '\0';
}

// `text` between "&" and ";".
char named_character(std::string_view text) {
  constexpr std::pair<std::string_view, char> names[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [name, character] : names)
    if (name == text) return character;
  return text.starts_with('#') ? numbered_character(text) : '\0';
}

// An entity that is not known stays as it is.
std::string without_entities(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.front() == '&' ? text.find(';') : text.npos;
    const char character = end == text.npos ? '\0' : named_character(text.substr(1, end - 1));
    out += character == '\0' ? text.front() : character;
    text.remove_prefix(character == '\0' ? 1 : end + 1);
  }
  return out;
}

std::string text_of(std::string_view xml, std::string_view name) {
  return without_entities(element(xml, name).value_or(""));
}

// With `encoding-type=url`, as a form has it: a space is "+".
std::string decoded_key(std::string key) {
  std::replace(key.begin(), key.end(), '+', ' ');
  return percent_decoded(key);
}

}  // namespace

std::optional<S3Page> read_s3_page(std::string_view xml, std::string_view prefix) {
  if (xml.find("<ListBucketResult") == xml.npos) return std::nullopt;
  const bool is_encoded = text_of(xml, "EncodingType") == "url";
  S3Page page;
  if (text_of(xml, "IsTruncated") == "true") {
    page.next = text_of(xml, "NextContinuationToken");
    if (page.next.empty()) return std::nullopt;
  }
  while (const std::optional<std::string_view> contents = element(xml, "Contents", &xml)) {
    std::string key = text_of(*contents, "Key");
    if (is_encoded) key = decoded_key(std::move(key));
    const std::optional<std::uint64_t> size = bytes::number(text_of(*contents, "Size"));
    if (!size) return std::nullopt;
    if (!key.starts_with(prefix)) continue;
    std::string name = key.substr(prefix.size());
    if (!check_relative(name) || name.find('/') != name.npos) continue;
    page.files.push_back({std::move(name), *size, text_of(*contents, "ETag")});
  }
  return page;
}

}  // namespace weightmap::remote
