#include "runtime/services/write/shards.hpp"

#include <algorithm>
#include <unordered_map>

#include "runtime/base/json/json_text.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap {

std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const ShardItem> items,
                                                         std::uint64_t most_bytes) {
  std::vector<std::vector<std::size_t>> shards(1);  // in the order of their beginnings
  std::vector<std::size_t> full;
  std::unordered_map<std::size_t, std::size_t> shard_of;  // by group
  std::size_t open = 0;
  std::uint64_t open_bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto [bytes, group] = items[i];
    const auto [place, is_new] = shard_of.emplace(group, open);
    if (is_new && most_bytes != 0 && bytes > most_bytes) {
      place->second = shards.size();
      full.push_back(shards.size());
      shards.emplace_back();
    } else if (is_new && most_bytes != 0 && bytes > most_bytes - open_bytes) {
      full.push_back(open);
      place->second = open = shards.size();
      open_bytes = bytes;
      shards.emplace_back();
    } else if (is_new) {
      open_bytes += bytes;
    }
    shards[place->second].push_back(i);
  }
  if (!shards[open].empty() || full.empty()) full.push_back(open);
  std::vector<std::vector<std::size_t>> numbered;
  for (const std::size_t shard : full) numbered.push_back(std::move(shards[shard]));
  return numbered;
}

std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t index,
                                 std::size_t count) {
  const std::string stem = path.stem().native();
  const sets::ShardName name{stem, static_cast<std::uint32_t>(index + 1),
                             static_cast<std::uint32_t>(count)};
  return path.parent_path() / sets::to_string(name, path.extension().native());
}

std::filesystem::path index_path(const std::filesystem::path& path) {
  return std::filesystem::path(path) += ".index.json";
}

std::string shard_index_text(std::vector<std::pair<std::string_view, std::size_t>> shard_of,
                             std::size_t count, const std::filesystem::path& path,
                             std::uint64_t tensor_bytes) {
  std::ranges::sort(shard_of);
  std::string text = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(tensor_bytes) +
                     "\n  },\n  \"weight_map\": {";
  std::string_view before = "\n    ";
  for (const auto& [name, shard] : shard_of) {
    text += before;
    json::append_string(text, name, json::BeyondAscii::escaped);
    text += ": ";
    json::append_string(text, shard_path(path, shard, count).filename().native(),
                        json::BeyondAscii::escaped);
    before = ",\n    ";
  }
  return text + "\n  }\n}\n";
}

}  // namespace weightmap
