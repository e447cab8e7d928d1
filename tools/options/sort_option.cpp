#include "tools/options/sort_option.hpp"

#include <map>
#include <string>

namespace weightmap::cli {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Takes the number at the front, without its leading zeros, off `text`.
std::string_view take_number(std::string_view& text) noexcept {
  while (text.size() > 1 && text[0] == '0' && is_digit(text[1])) text.remove_prefix(1);
  std::size_t length = 0;
  while (length < text.size() && is_digit(text[length])) ++length;
  const std::string_view number = text.substr(0, length);
  text.remove_prefix(length);
  return number;
}

}  // namespace

void add_sort_option(CLI::App& command, SortBy& by) {
  const std::map<std::string, SortBy> words = {
      {"file", SortBy::file}, {"name", SortBy::name}, {"size", SortBy::size}};
  command
      .add_option_function<std::string>(
          "--sort",
          [&by, words](const std::string& word) {
            const auto found = words.find(word);
            if (found == words.end())
              throw CLI::ValidationError("--sort", "must be file|name|size");
            by = found->second;
          },
          "The order: as in the file, by name, or the largest first")
      ->type_name("file|name|size");
}

bool name_precedes(std::string_view a, std::string_view b) noexcept {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view number_a = take_number(a);
      const std::string_view number_b = take_number(b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
    } else {
      if (a[0] != b[0]) return std::string_view(a).substr(0, 1) < b.substr(0, 1);
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() && b.empty()) return whole_a < whole_b;
  return a.empty();
}

}  // namespace weightmap::cli
