// What the manifests of snapshots and of templates have in common, as JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/snapshot/manifest.hpp"
#include "tools/snapshot/surroundings.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/json_reader.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

Json describe(const std::vector<UsedFile>& files);
Json describe(const std::vector<NamedLink>& links);

// These fail with corrupt, naming the field `where`.
Result<UsedFile> parse_used_file(const JsonReader& reader, const Json& json,
                                 const std::string& where);
Result<NamedLink> parse_link(const JsonReader& reader, const Json& json, const std::string& where);
Result<std::string> parse_word(const JsonReader& reader, const Json& json,
                               const std::string& where);

// Returns the member `name` of an object, each of whose members is a text.
Result<std::map<std::string, std::string>> parse_environment(const JsonReader& reader,
                                                             const Json& json, const char* name);

// Returns the member `name`, a list.
template <class Item>
Result<std::vector<Item>> parse_list(const JsonReader& reader, const Json& json, const char* name,
                                     Result<Item> (*parse)(const JsonReader&, const Json&,
                                                           const std::string&)) {
  const Json& list = JsonReader::member(json, name);
  TRY(reader.expect_list(list, name));
  std::vector<Item> items;
  for (std::size_t i = 0; i < list.size(); ++i) {
    TRY_ASSIGN(Item item,
               parse(reader, list[i], std::string(name) + "[" + std::to_string(i) + "]"));
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace weightmap::cli::snapshot
