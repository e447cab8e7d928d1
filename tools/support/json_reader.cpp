#include "tools/support/json_reader.hpp"

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

constexpr std::size_t longest_shown = 200;

bool is_deep(std::string_view text) {
  bool is_in_string = false;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') ++i;  // only strings have it
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) continue;
    if (c == ']' || c == '}') --depth;
    if ((c == '[' || c == '{') && ++depth > deepest_json) return true;
  }
  return false;
}

}  // namespace

// The parser could ask for the depth, too, but with a question it takes a time that grows with the
// square of a list's length: 50 ms for 4,000 files.
Result<Json> parse_json(std::string_view text) {
  const std::string no_json = "is no JSON";
  if (is_deep(text))
    return failure(ErrorCode::corrupt,
                   Json::accept(text)
                       ? "is nested more than " + std::to_string(deepest_json) + " deep"
                       : no_json);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return failure(ErrorCode::corrupt, no_json);
  return json;
}

tl::unexpected<Error> JsonReader::corrupt(const std::string& text) const {
  return failure(ErrorCode::corrupt, document_ + ": " + text);
}

Result<Json> JsonReader::open(std::string_view text, std::string_view kind,
                              std::uint64_t version) const {
  const Result<Json> parsed = parse_json(text);
  if (!parsed) return corrupt(parsed.error().message);
  const Json& json = *parsed;
  if (!json.is_object() || member(json, "kind") != kind)
    return corrupt("\"kind\" is not \"" + std::string(kind) + "\"");
  if (member(json, "version") != version)
    return failure(ErrorCode::unsupported, document_ + " has version " +
                                               shown(member(json, "version")) + ", expected " +
                                               std::to_string(version));
  return json;
}

Result<std::uint64_t> JsonReader::number(const Json& value, const std::string& field) const {
  if (!value.is_number_unsigned()) return corrupt(field + " is " + shown(value) + ", no number");
  return value.get<std::uint64_t>();
}

Result<std::int64_t> JsonReader::signed_number(const Json& value, const std::string& field) const {
  if (!value.is_number_integer()) return corrupt(field + " is " + shown(value) + ", no number");
  return value.get<std::int64_t>();
}

Result<std::string> JsonReader::text(const Json& value, const std::string& field) const {
  if (!value.is_string()) return corrupt(field + " is " + shown(value) + ", no text");
  return value.get<std::string>();
}

Result<void> JsonReader::expect_list(const Json& value, const std::string& field) const {
  if (!value.is_array()) return corrupt(field + " is " + shown(value) + ", no list");
  return {};
}

Result<void> JsonReader::expect_object(const Json& value, const std::string& field) const {
  if (!value.is_object()) return corrupt(field + " is " + shown(value) + ", no object");
  return {};
}

const Json& JsonReader::member(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string JsonReader::shown(const Json& value) {
  std::string text = to_text(value);
  if (text.size() > longest_shown) text.replace(longest_shown, std::string::npos, "...");
  return printable(text);
}

}  // namespace weightmap::cli
