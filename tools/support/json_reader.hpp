// Reads a JSON document that may hold anything: each error names the field and shows its value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

// Printing, copying and reading a value may recurse, so nothing deeper is parsed.
inline constexpr int deepest_json = 64;

// Fails with corrupt ("is no JSON", "is nested more than 64 deep").
Result<Json> parse_json(std::string_view text);

class JsonReader {
 public:
  // `document` begins each message: "the plan of a start".
  explicit JsonReader(std::string document) : document_(std::move(document)) {}

  tl::unexpected<Error> corrupt(const std::string& text) const;
  // Returns the document's object, if its members "kind" and "version" are these: else fails with
  // corrupt, or with unsupported for another version.
  Result<Json> open(std::string_view text, std::string_view kind, std::uint64_t version) const;

  Result<std::uint64_t> number(const Json& value, const std::string& field) const;
  Result<std::int64_t> signed_number(const Json& value, const std::string& field) const;
  Result<std::string> text(const Json& value, const std::string& field) const;
  Result<void> expect_list(const Json& value, const std::string& field) const;
  Result<void> expect_object(const Json& value, const std::string& field) const;

  // Returns null for a member that is not there.
  static const Json& member(const Json& object, const char* name);
  // Returns the value's beginning, safe for a terminal.
  static std::string shown(const Json& value);

 private:
  std::string document_;
};

}  // namespace weightmap::cli
