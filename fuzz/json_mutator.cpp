#include "fuzz/json_mutator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "fuzz/mutation.hpp"

namespace weightmap::fuzz {
namespace {

constexpr auto words = std::to_array<std::string_view>(
    {"\"dtype\":",
     "\"shape\":",
     "\"data_offsets\":",
     "\"__metadata__\":",
     "\"weight_map\":",
     "\"metadata\":",
     "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
     "\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}",
     "\"w\":\"model-00001-of-00002.safetensors\"",
     "\"d\\u0074ype\":",
     "\"F32\"",
     "\"BF16\"",
     "\"U8\"",
     "\"F4\"",
     "\"F6_E2M3\"",
     "\"BOOL\"",
     "\"U64\"",
     "\"C64\"",
     "\"F8_E8M0\"",
     "\\u0000",
     "\\ud83d\\ude42",
     "\\ud83d",
     "\\\"",
     "../",
     "null",
     "true",
     "1e5",
     "-0",
     "{}",
     "[]",
     "\"\"",
     " ",
     "\n",
     ",",
     ":",
     "]",
     "}"});

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the places where the text of an item, or of a possible one, begins or ends.
std::vector<std::size_t> borders(std::string_view text) {
  constexpr std::string_view marks = "{}[],:\"";
  std::vector<std::size_t> found{0};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (marks.find(text[i]) == std::string_view::npos) continue;
    found.push_back(i);
    found.push_back(i + 1);
  }
  found.push_back(text.size());
  return found;
}

struct Range {
  std::size_t begin;
  std::size_t size;
};

// Returns a range between two borders, usually close ones.
Range any_range(std::string_view text, Random& random) {
  const std::vector<std::size_t> all = borders(text);
  const std::size_t first = random.below(all.size());
  const std::size_t most = random.once_in(4) ? all.size() : std::size_t{60};
  const std::size_t last = std::min(all.size() - 1, first + random.below(most));
  return {all[first], all[last] - all[first]};
}

std::vector<Range> numbers(std::string_view text) {
  std::vector<Range> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i])) continue;
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    found.push_back({begin, i - begin});
  }
  return found;
}

void change_number(std::string& text, Random& random) {
  const std::vector<Range> all = numbers(text);
  if (all.empty()) return;
  const Range at = all[random.below(all.size())];
  const Range other = all[random.below(all.size())];
  std::string number =
      random.once_in(2) ? text.substr(other.begin, other.size) : std::to_string(random.number());
  if (random.once_in(10)) number.insert(0, random.once_in(2) ? "0" : "-");
  text.replace(at.begin, at.size, number);
}

void change_once(std::string& text, Random& random) {
  switch (random.below(8)) {
    case 0:
      return mutate_bytes(text);
    case 1:
    case 2:
      return change_number(text, random);
    case 3: {
      const Range range = any_range(text, random);
      text.erase(range.begin, range.size);
      return;
    }
    case 4:
    case 5: {
      const Range from = any_range(text, random);
      const std::string copied = text.substr(from.begin, from.size);
      const Range to = any_range(text, random);
      text.replace(to.begin, random.once_in(2) ? to.size : 0, copied);
      return;
    }
    case 6: {  // duplicates the item
      const Range range = any_range(text, random);
      text.insert(range.begin + range.size, "," + text.substr(range.begin, range.size));
      return;
    }
    default:
      text.insert(any_range(text, random).begin, words[random.below(words.size())]);
  }
}

}  // namespace

void mutate_json(std::string& text, Random& random) {
  for (std::size_t left = 1 + random.below(4); left > 0; --left) change_once(text, random);
}

}  // namespace weightmap::fuzz
