// The options of an open as a table: one row says everything about an option that is not its
// effect. The environment, the command line and the Python package are made from it, and the table
// in docs/options.md is checked against it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/options.hpp"

namespace weightmap {

struct OptionRow {
  std::string_view name;                    // "sharing": the argument in Python
  const char* variable;                     // "WEIGHTMAP_SHARING"
  std::span<const std::string_view> words;  // what it takes; {"0", "1"} for a switch
  std::size_t default_word;                 // the built-in default, a position in `words`
  bool on_command_line;                     // whether the command line tool offers it
  std::string_view help;                    // "map the file shared ...": one line, no full stop

  // The field, as a position in `words`; get() gives nullopt where it is unset.
  std::optional<std::size_t> (*get)(const OpenOptions& options) noexcept;
  void (*set)(OpenOptions& options, std::size_t word) noexcept;

  WEIGHTMAP_API bool is_switch() const noexcept;
  // The position of a word; nullopt for any other text.
  WEIGHTMAP_API std::optional<std::size_t> find(std::string_view word) const noexcept;
  // What the refusal of a word that find() does not know says in addition; mostly nothing.
  WEIGHTMAP_API std::string_view hint_about(std::string_view word) const noexcept;
};

// In the order in which help and documentation list them. Lives as long as the program.
WEIGHTMAP_API std::span<const OptionRow> option_table() noexcept;

// The row of this name; nullptr if there is none.
WEIGHTMAP_API const OptionRow* find_option(std::string_view name) noexcept;

}  // namespace weightmap
