// The options of an open as a table: one row has every property of an option except its effect. The
// environment, the command line and the Python package are made from it, and a test compares the
// table in docs/options.md with it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "weightmap/options.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

struct OptionRow {
  std::string_view name;                    // "sharing": the argument in Python
  const char* variable;                     // "WEIGHTMAP_SHARING"
  std::span<const std::string_view> words;  // the accepted words; {"0", "1"} for a switch
  std::size_t default_word;                 // the built-in default, a position in `words`
  bool on_command_line;                     // the command line tool has it
  std::string_view help;                    // "map the file shared ...": one line, no full stop

  // Access the field as a position in `words`; get() returns nullopt if it is unset.
  std::optional<std::size_t> (*get)(const OpenOptions& options) noexcept;
  void (*set)(OpenOptions& options, std::size_t word) noexcept;

  WEIGHTMAP_API bool is_switch() const noexcept;
  // Returns the position of a word; nullopt for any other text.
  WEIGHTMAP_API std::optional<std::size_t> find(std::string_view word) const noexcept;
  // Returns an addition to the refusal of an unknown word; usually empty.
  WEIGHTMAP_API std::string_view hint_about(std::string_view word) const noexcept;
};

// Returns static data, in the order of help and documentation.
WEIGHTMAP_API std::span<const OptionRow> option_table() noexcept;

// Returns the row of this name; nullptr if there is none.
WEIGHTMAP_API const OptionRow* find_option(std::string_view name) noexcept;

}  // namespace weightmap
