// Tables: aligned columns for users, tab-separated fields for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/support/output.hpp"

namespace weightmap::cli {

struct Column {
  std::string title;
  enum Align { left, right } align = left;
};

// The style of cells. In TSV, no field contains a space or a tab: they become \x20 and \x09 in
// names, underscores in titles.
struct TableStyle {
  bool exact_bytes = false;
  bool tsv = false;

  // Returns "64.0 KiB", or "65536" in exact bytes and in TSV.
  std::string bytes(std::uint64_t number) const;
  // Returns "[4, 4]", or "[4,4]" in TSV.
  std::string dims(std::span<const std::int64_t> values) const;
};

// Prints the titles and `rows` rows. `row` is called twice for each index, first to measure, so
// that a hundred thousand rows need no memory; once for TSV.
void print_columns(Output& out, const TableStyle& style, const std::vector<Column>& columns,
                   std::size_t rows,
                   const std::function<std::vector<std::string>(std::size_t)>& row);
// Returns a small table as text.
std::string to_columns(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace weightmap::cli
