#include "tools/snapshot/manifest_parts.hpp"

namespace weightmap::cli::snapshot {

Json describe(const std::vector<UsedFile>& files) {
  Json list = Json::array();
  for (const UsedFile& file : files)
    list.push_back({{"path", file.path},
                    {"size", file.size},
                    {"mtime_ns", file.mtime_ns},
                    {"ctime_ns", file.ctime_ns}});
  return list;
}

Json describe(const std::vector<NamedLink>& links) {
  Json list = Json::array();
  for (const NamedLink& link : links)
    list.push_back({{"path", link.path}, {"target", link.target}});
  return list;
}

Result<UsedFile> parse_used_file(const JsonReader& reader, const Json& json,
                                 const std::string& where) {
  TRY(reader.expect_object(json, where));
  const auto field = [&json](const char* name) -> const Json& {
    return JsonReader::member(json, name);
  };
  UsedFile file;
  TRY_ASSIGN(file.path, reader.text(field("path"), where + ".path"));
  TRY_ASSIGN(file.size, reader.number(field("size"), where + ".size"));
  TRY_ASSIGN(file.mtime_ns, reader.signed_number(field("mtime_ns"), where + ".mtime_ns"));
  TRY_ASSIGN(file.ctime_ns, reader.signed_number(field("ctime_ns"), where + ".ctime_ns"));
  return file;
}

Result<NamedLink> parse_link(const JsonReader& reader, const Json& json, const std::string& where) {
  TRY(reader.expect_object(json, where));
  NamedLink link;
  TRY_ASSIGN(link.path, reader.text(JsonReader::member(json, "path"), where + ".path"));
  TRY_ASSIGN(link.target, reader.text(JsonReader::member(json, "target"), where + ".target"));
  return link;
}

Result<std::string> parse_word(const JsonReader& reader, const Json& json,
                               const std::string& where) {
  return reader.text(json, where);
}

Result<std::map<std::string, std::string>> parse_environment(const JsonReader& reader,
                                                             const Json& json, const char* name) {
  const Json& object = JsonReader::member(json, name);
  TRY(reader.expect_object(object, name));
  std::map<std::string, std::string> environment;
  for (const auto& [variable, text] : object.items()) {
    TRY_ASSIGN(environment[variable], reader.text(text, std::string(name) + "." + variable));
  }
  return environment;
}

}  // namespace weightmap::cli::snapshot
