#include "tools/shards/shard_index.hpp"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/support/text.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli {
namespace {

tl::unexpected<Error> refuse(const std::filesystem::path& path, std::string why,
                             ErrorCode code = ErrorCode::invalid_argument) {
  return tl::unexpected<Error>(
      Error{.code = code, .message = std::move(why), .file = printable(path.native())});
}

// Of the JSON; `twice` gets a name that weight_map has twice.
nlohmann::json parse(std::istream& stream, std::string& twice) {
  std::set<std::string> names;
  const auto look = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event != nlohmann::json::parse_event_t::key) return true;
    if (depth == 1) names.clear();
    if (!names.insert(parsed.get<std::string>()).second && depth == 2) twice = parsed;
    return true;
  };
  return nlohmann::json::parse(stream, look, false);
}

}  // namespace

Result<ShardIndex> read_shard_index(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return refuse(path, "cannot be opened", ErrorCode::io);
  std::string twice;
  const nlohmann::json json = parse(stream, twice);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object())
    return refuse(path, "is not an index of shards: JSON with an object weight_map");
  if (!twice.empty()) return refuse(path, "names " + printable(twice) + " twice");
  ShardIndex index;
  if (json.contains("metadata") && json["metadata"].is_object())
    index.total_size = json["metadata"].value("total_size", std::uint64_t{0});
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) return refuse(path, printable(name) + " has no file");
    const std::string& text = file.get_ref<const std::string&>();
    if (text.empty() || std::filesystem::path(text).filename() != text || text == "..")
      return refuse(path, printable(name) + " is in " + printable(text) +
                              ", which is not a file beside the index");
    index.file_of.emplace(name, text);
  }
  return index;
}

Result<void> write_shard_index(const ShardIndex& index, const std::filesystem::path& path) {
  const nlohmann::json json{{"metadata", {{"total_size", index.total_size}}},
                            {"weight_map", index.file_of}};
  const std::string text = json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  Result<NewFile> file = NewFile::create(path);
  if (!file) return tl::unexpected<Error>(file.error());
  if (Result<void> ok = file->write(std::as_bytes(std::span(text))); !ok) return ok;
  return file->commit();
}

}  // namespace weightmap::cli
