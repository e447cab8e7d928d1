#include "tools/options/listed_words.hpp"

#include <fstream>
#include <string_view>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) + 1 - first);
}

void add_lines(const std::string& path, const std::string& option,
               std::vector<std::string>& words) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::string_view word = trimmed(line); !word.empty() && word.front() != '#')
      words.emplace_back(word);
  if (!file.eof()) throw CLI::ValidationError(option, "cannot read " + printable(path));
}

}  // namespace

CLI::Option* add_listed_words(CLI::App& command, const std::string& name,
                              std::vector<std::string>& words, const std::string& help) {
  const auto add = [&words, name](const std::string& text) {
    if (text.starts_with('@'))
      add_lines(text.substr(1), name, words);
    else
      words.push_back(text);
  };
  return command.add_option_function<std::string>(name, add, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->trigger_on_parse();
}

}  // namespace weightmap::cli
