// Tables: aligned columns for people, fields between tabs for programs.
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

// How cells are written. As TSV, no field has a blank or a tab inside: those of names are \x20 and
// \x09, those of titles underscores.
struct TableStyle {
  bool exact_bytes = false;
  bool tsv = false;

  // "64.0 KiB", or "65536" in exact bytes and in TSV.
  std::string bytes(std::uint64_t number) const;
  // "[4, 4]", or "[4,4]" in TSV.
  std::string dims(std::span<const std::int64_t> values) const;
};

// Prints the titles and `rows` rows. `row` is called twice for each index, first to measure, so
// that a hundred thousand rows need no memory; once for TSV.
void print_columns(Output& out, const TableStyle& style, const std::vector<Column>& columns,
                   std::size_t rows,
                   const std::function<std::vector<std::string>(std::size_t)>& row);
// A table for people, as text. For one that is small.
std::string to_columns(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace weightmap::cli
