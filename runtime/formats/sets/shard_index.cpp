#include "runtime/formats/sets/shard_index.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap::sets {
namespace {

class IndexParser {
 public:
  IndexParser(ShardIndex& index, const Limits& limits, std::pmr::memory_resource& memory)
      : index_(index),
        json_(index.json),
        build_(memory, {limits.base_memory + 5 * json_.text().size(), limits.depth}) {}

  Result<void> run() {
    std::string_view key;
    if (json_.enter_object())
      while (json_.next_key(key)) TRY(read_item(key));
    if (!json_.end()) return not_json();
    if (!has_map_)
      return failure(ErrorCode::not_a_checkpoint,
                     is_xgboost_ ? "is a model of XGBoost as JSON; load it with xgboost"
                                 : "is JSON without a weight_map, so it is no index of shards");
    if (index_.items.empty() && !index_.may_be_empty)
      return failure(ErrorCode::corrupt, "the index of shards names no tensor");
    sort_files();
    TRY_ASSIGN(index_.metadata, std::move(build_).finish(metadata_));
    return {};
  }

 private:
  [[gnu::cold]] tl::unexpected<Error> not_json() const {
    Error error = json_.error();
    error.message.insert(0, "the index of shards: ");
    return tl::unexpected<Error>(std::move(error));
  }
  [[gnu::cold]] tl::unexpected<Error> corrupt(const std::string& why) const {
    return failure(ErrorCode::corrupt, "the index of shards " + why, json_.position());
  }

  Result<void> read_item(std::string_view key) {
    if (key == "weight_map") return read_map();
    const bool is_metadata = key == "metadata";
    is_xgboost_ = is_xgboost_ || key == "learner";
    Result<value::Cell> value = json::add_value(build_, json_);
    if (!value) return json_.failed() ? not_json() : tl::unexpected<Error>(value.error());
    if (!is_metadata) return {};
    if (std::exchange(has_metadata_, true)) return corrupt("has metadata twice");
    if (value::kind_of(*value) == Value::Kind::dict) metadata_ = *value;
    return {};
  }

  Result<void> read_map() {
    if (std::exchange(has_map_, true)) return corrupt("has weight_map twice");
    constexpr std::size_t usual_bytes = 80;  // of a tensor
    index_.items.reserve(json_.text().size() / usual_bytes + 1);
    std::string_view tensor;
    if (json_.enter_object())
      while (json_.next_key(tensor)) {
        const auto position = static_cast<std::uint32_t>(json_.position());
        std::string_view file;
        if (tensor.starts_with('/') && json_.next() == json::TokenReader::Next::array)
          return failure(ErrorCode::not_a_checkpoint,
                         "is the index of weights that Keras has written in shards (.weights.h5); "
                         "load them with keras, and save them as safetensors");
        if (!json_.string(file)) break;
        TRY_ASSIGN(const std::uint32_t number, number_of(file));
        index_.items.push_back({tensor, number, position});
      }
    if (json_.failed()) return not_json();
    return {};
  }

  Result<std::uint32_t> number_of(std::string_view file) {
    if (!index_.items.empty() && index_.files[index_.items.back().file] == file)
      return index_.items.back().file;
    if (const auto known = numbers_.find(std::string(file)); known != numbers_.end())
      return known->second;
    if (!stays_below(file))
      return corrupt("names the file " + bytes::quote(file) +
                     ", which does not lie beside it or in a folder there");
    if (index_.files.size() == most_files)
      return failure(ErrorCode::limit_exceeded,
                     "the index of shards names more than " + std::to_string(most_files) +
                         " files, which is the limit",
                     json_.position());
    const auto number = static_cast<std::uint32_t>(index_.files.size());
    index_.files.emplace_back(file);
    numbers_.emplace(file, number);
    return number;
  }

  void sort_files() {
    std::vector<std::uint32_t> order(index_.files.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto name = [this](std::uint32_t number) -> const std::string& {
      return index_.files[number];
    };
    if (std::ranges::is_sorted(order, {}, name)) return;
    std::ranges::sort(order, {}, name);
    std::vector<std::uint32_t> place(order.size());
    std::vector<std::string> sorted;
    for (const std::uint32_t number : order) {
      place[number] = static_cast<std::uint32_t>(sorted.size());
      sorted.push_back(std::move(index_.files[number]));
    }
    index_.files = std::move(sorted);
    for (ShardIndex::Item& item : index_.items) item.file = place[item.file];
  }

  ShardIndex& index_;
  json::TokenReader& json_;
  value::Builder build_;
  value::Cell metadata_ = build_.dict({});
  bool has_map_ = false;
  bool is_xgboost_ = false;
  bool has_metadata_ = false;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace

Result<void> read_shard_index(ShardIndex& index, const Limits& limits,
                              std::pmr::memory_resource& memory) {
  return IndexParser(index, limits, memory).run();
}

}  // namespace weightmap::sets
