#include "tools/support/json_reader.hpp"

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

constexpr std::size_t longest_shown = 200;

}  // namespace

Result<Json> parse_json(std::string_view text) {
  bool is_deep = false;
  const auto keeps = [&is_deep](int depth, Json::parse_event_t, const Json&) {
    is_deep = is_deep || depth > deepest_json;
    return !is_deep;
  };
  Json json = Json::parse(text, keeps, false);
  if (is_deep && !json.is_discarded())
    return failure(ErrorCode::corrupt,
                   "is nested more than " + std::to_string(deepest_json) + " deep");
  if (json.is_discarded()) return failure(ErrorCode::corrupt, "is no JSON");
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
