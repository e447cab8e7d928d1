#include "weightmap/options.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/option_table.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/variable.hpp"

using namespace weightmap;
using test::Variable;

namespace {

// Each variable set to a word that is not the default.
std::vector<std::unique_ptr<Variable>> everything_asked_for() {
  std::vector<std::unique_ptr<Variable>> variables;
  for (const OptionRow& option : option_table()) {
    const std::string word(option.words[option.default_word == 0 ? 1 : 0]);
    variables.push_back(std::make_unique<Variable>(option.variable, word.c_str()));
  }
  return variables;
}

std::string in_code(std::string_view text) { return "`" + std::string(text) + "`"; }

// The row of docs/options.md.
std::string documented(const OptionRow& option) {
  std::string words;
  for (std::size_t word = 0; word < option.words.size(); ++word) {
    const std::string mark = word == option.default_word ? "**" : "";
    words += (words.empty() ? "" : ", ") + mark + std::string(option.words[word]) + mark;
  }
  std::string flag = option.is_switch() && option.default_word == 1 ? "--no-" : "--";
  for (char c : option.name) flag += c == '_' ? '-' : c;
  if (option.name == "zero_copy_only") flag = "--strict";  // as tools/command.cpp calls it
  return "| " + in_code(option.name) + " | " + words + " | " + in_code(option.variable) + " | " +
         (option.on_command_line ? in_code(flag) + " " : "") + "| " + std::string(option.help) +
         " |\n";
}

std::string documented_table() {
  std::string table =
      "| option | words | environment variable | command line | what it does |\n"
      "|---|---|---|---|---|\n";
  for (const OptionRow& option : option_table()) table += documented(option);
  return table;
}

}  // namespace

TEST_CASE("takes the built-in defaults where nobody says anything") {
  const Variable verify("WEIGHTMAP_VERIFY", "");
  const OpenOptions options = default_open_options().value();
  CHECK(options.sharing == Sharing::shared);
  CHECK(options.writable == false);
  CHECK(options.verify == Verify::chain);
  CHECK(options.missing_byte_order == ByteOrder::little);
  CHECK(options.populate == false);
  CHECK(options.no_reserve == false);
  CHECK(options.locked == false);
  CHECK(!options.huge_pages);  // the machine decides
  CHECK(options.protection == Protection::map);
  CHECK(options.copy_on_write == CopyOnWrite::on);
  CHECK(options.globals == Globals::opaque);
  CHECK(options.safe_globals.empty());
}

TEST_CASE("lets the environment replace a default and a call replace the environment") {
  const Variable verify("WEIGHTMAP_VERIFY", "crc");
  const Variable sharing("WEIGHTMAP_SHARING", "private");
  const Variable order("WEIGHTMAP_BYTEORDER", "big");
  const Variable huge("WEIGHTMAP_HUGEPAGES", "0");
  const OpenOptions call{.sharing = Sharing::shared};
  const OpenOptions options = with_defaults(call).value();
  CHECK(options.verify == Verify::crc);
  CHECK(options.sharing == Sharing::shared);
  CHECK(options.missing_byte_order == ByteOrder::big);
  CHECK(options.huge_pages == false);
  CHECK(default_open_options()->sharing == Sharing::private_);
}

TEST_CASE("refuses a variable that holds another word, naming it, the words and what it was") {
  const struct {
    const char* variable;
    const char* word;
    const char* must_be;
  } rows[] = {
      {"WEIGHTMAP_VERIFY", "full", "chain or headers or crc"},
      {"WEIGHTMAP_PROTECTION", "copy",
       "map or guard or reflink (a copy in memory is made by `weightmap stage`, or stage() "
       "in a program)"},
      {"WEIGHTMAP_PROTECTION", "snapshot", "map or guard or reflink (snapshot is called reflink)"}};
  for (const auto& row : rows) {
    CAPTURE(row.word);
    const Variable variable(row.variable, row.word);
    CHECK_FAILS(default_open_options(), ErrorCode::invalid_argument,
                "environment variable " + std::string(row.variable) + " must be " + row.must_be);
    const OpenOptions call{.verify = Verify::chain, .protection = Protection::map};
    CHECK(with_defaults(call).has_value());
  }
}

TEST_CASE("refuses a limit of depth that a node cannot count to") {
  OpenOptions call{.limits = {.depth = 65535}};
  CHECK(with_defaults(call).has_value());
  call.limits.depth = 65536;
  CHECK_FAILS(with_defaults(call), ErrorCode::invalid_argument,
              "limits.depth is 65536, the largest that can be counted is 65535");
}

TEST_CASE("leaves unset what the environment does not set") {
  const Variable verify("WEIGHTMAP_VERIFY", "crc");
  const Variable sharing("WEIGHTMAP_SHARING", "");
  const OpenOptions options = with_environment({.sharing = {}, .writable = true}).value();
  CHECK(options.verify == Verify::crc);
  CHECK(options.writable == true);
  CHECK(!options.sharing);
}

TEST_CASE("looks at a checkpoint whatever the environment asks for") {
  const auto variables = everything_asked_for();
  const OpenOptions options = with_defaults(OpenOptions::to_look()).value();
  CHECK(options.sharing == Sharing::shared);
  CHECK(options.verify == Verify::chain);
  CHECK(options.protection == Protection::map);
  CHECK(options.writable == false);
  CHECK(options.populate == false);
  CHECK(options.no_reserve == false);
  CHECK(options.locked == false);
  CHECK(options.globals == Globals::opaque);
  CHECK(options.missing_byte_order == ByteOrder::big);
  CHECK(options.huge_pages == false);
}

TEST_CASE("has a row for each option, with a name, a variable and words of its own") {
  std::vector<std::string_view> names;
  std::set<std::string> variables;
  for (const OptionRow& option : option_table()) {
    names.push_back(option.name);
    variables.insert(option.variable);
    CHECK(find_option(option.name) == &option);
    for (std::size_t word = 0; word < option.words.size(); ++word) {
      OpenOptions options;
      CHECK(!option.get(options));
      option.set(options, word);
      CHECK(option.get(options) == word);
      CHECK(option.find(option.words[word]) == word);
    }
    CHECK(!option.find("neither"));
  }
  CHECK(names == std::vector<std::string_view>{"sharing", "verify", "endianness", "protection",
                                               "writable", "populate", "no_reserve", "locked",
                                               "huge_pages", "zero_copy_only", "copy_on_write",
                                               "globals", "repeats"});
  CHECK(variables.size() == names.size());
  CHECK(find_option("speed") == nullptr);
  CHECK(find_option("writable")->is_switch());
  CHECK(!find_option("sharing")->is_switch());
}

TEST_CASE("is documented in docs/options.md, row by row") {
  std::ifstream file(WEIGHTMAP_TEST_DATA "/../../docs/options.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string table = documented_table();
  CAPTURE(table);  // what the file should have
  CHECK(text.str().find("\n\n" + table + "\n") != std::string::npos);
}
