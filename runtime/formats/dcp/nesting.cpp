#include "runtime/formats/dcp/nesting.hpp"

#include <algorithm>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::dcp {

using value::Cell;

std::vector<Nesting::Key> Nesting::keys_of(std::string_view name,
                                           const std::optional<Value>& path) {
  std::vector<Key> keys;
  if (path)
    for (const Value& part : path->elements()) {
      if (!part.integer() && !part.string()) return {{std::nullopt, name}};
      keys.push_back({part.integer(), part.string().value_or(std::string_view())});
    }
  if (keys.empty()) keys.push_back({std::nullopt, name});
  return keys;
}

// Makes an empty slot if there is none yet.
Result<std::size_t> Nesting::place_of(std::uint32_t number, const Key& key) {
  Container& container = containers_[number];
  if (!container.is_list) {
    const std::string text =
        key.number ? "#" + std::to_string(*key.number) : ":" + std::string(key.text);
    const auto [at, is_new] = container.places.try_emplace(text, container.slots.size());
    if (is_new) container.slots.push_back({key, {}});
    return at->second;
  }
  if (!key.number || *key.number < 0)
    return failure(ErrorCode::corrupt, "its path has a key of a list that is no index");
  const auto index = static_cast<std::uint64_t>(*key.number);
  if (index < container.slots.size()) return index;
  const std::uint64_t most = limits_.base_memory / sizeof(Slot);
  padding_ += std::min(index - container.slots.size(), most + 1);
  if (padding_ > most)
    return failure(ErrorCode::limit_exceeded, "its path has the index " + std::to_string(index) +
                                                  ", and the lists have more than the limit of " +
                                                  std::to_string(most) + " empty places");
  container.slots.resize(index + 1);
  return index;
}

Result<void> Nesting::set(std::string_view name, const std::optional<Value>& path,
                          const Cell& value) {
  const auto about = [&](Error error) {
    error.message.insert(0, bytes::quote(name) + ": ");
    return tl::unexpected<Error>(std::move(error));
  };
  const std::vector<Key> keys = keys_of(name, path);
  if (keys.size() > limits_.depth)
    return about({ErrorCode::limit_exceeded,
                  "its path has " + std::to_string(keys.size()) + " keys, the limit is " +
                      std::to_string(limits_.depth),
                  Error::no_offset,
                  {}});
  std::uint32_t container = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Result<std::size_t> place = place_of(container, keys[i]);
    if (!place) return about(std::move(place.error()));
    Slot& slot = containers_[container].slots[*place].second;
    if (i + 1 == keys.size()) {
      slot = {value, 0};
      break;
    }
    if (slot.container == 0) {
      if (value::kind_of(slot.value) != Value::Kind::none)
        return about({ErrorCode::corrupt,
                      "its path leads through another value of the metadata",
                      Error::no_offset,
                      {}});
      slot.container = static_cast<std::uint32_t>(containers_.size());
      container = slot.container;
      containers_.emplace_back().is_list = keys[i + 1].number.has_value();  // moves the slot
    } else {
      container = slot.container;
    }
  }
  return {};
}

Result<Cell> Nesting::finish(value::Tree& tree) const {
  std::vector<Cell> made(containers_.size());
  std::vector<Cell> cells;
  for (std::size_t number = containers_.size(); number-- > 0;) {
    const Container& container = containers_[number];
    cells.clear();
    for (const auto& [key, slot] : container.slots) {
      if (!container.is_list)
        cells.push_back(key.number ? value::make_integer(*key.number)
                                   : value::make_cell(Value::Kind::string,
                                                      tree.position_of(key.text.data()),
                                                      static_cast<std::uint32_t>(key.text.size())));
      cells.push_back(slot.container == 0 ? slot.value : made[slot.container]);
    }
    const auto count = static_cast<std::uint32_t>(cells.size());
    const std::uint32_t depth = 1 + value::deepest(cells.data(), count);
    value::Sequence* const sequence = value::make_sequence(tree.arena());
    if (depth > limits_.depth || sequence == nullptr ||
        !value::extend(tree.arena(), *sequence, cells.data(), count, depth, 0))
      return failure(ErrorCode::limit_exceeded,
                     "the values nest deeper than the limit of " + std::to_string(limits_.depth) +
                         ", or need more memory than their items and names allow");
    made[number] =
        value::make_cell(container.is_list ? Value::Kind::list : Value::Kind::dict, sequence);
  }
  return made.front();
}

}  // namespace weightmap::dcp
