// Puts values at their paths: the nested dicts and lists that torch's unflatten_state_dict() makes
// of the flat names of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::dcp {

class Nesting {
 public:
  explicit Nesting(const Limits& limits) : limits_(limits) {}

  // Sets the value at a path, a tuple of keys, or under the name alone without a path of texts and
  // integers. What an integer is a key of is a list, which is filled up with None; a text that of a
  // dict. Texts must live as long as the tree. Fails with corrupt if a value lies on the way, with
  // limit_exceeded for a path deeper, or lists longer, than the limits.
  Result<void> set(std::string_view name, const std::optional<Value>& path,
                   const value::Cell& value);
  // Makes the dict of all values in the tree, which has the values. Fails with limit_exceeded.
  Result<value::Cell> finish(value::Tree& tree) const;

 private:
  struct Key {
    std::optional<std::int64_t> number;
    std::string_view text;
  };
  struct Slot {
    value::Cell value;
    std::uint32_t container = 0;  // the number of what is here; 0: a value
  };
  struct Container {
    bool is_list = false;
    std::vector<std::pair<Key, Slot>> slots;  // of a list by its indices
    std::unordered_map<std::string, std::size_t> places;
  };

  static std::vector<Key> keys_of(std::string_view name, const std::optional<Value>& path);
  Result<std::size_t> place_of(std::uint32_t container, const Key& key);

  const Limits& limits_;
  std::vector<Container> containers_{1};  // each before those in it
  std::uint64_t padding_ = 0;             // elements of lists that nothing was set at
};

}  // namespace weightmap::dcp
