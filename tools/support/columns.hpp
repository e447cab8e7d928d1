// Aligned columns for people.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/support/output.hpp"

namespace weightmap::cli {

struct Column {
  std::string title;
  enum Align { left, right } align = left;
};

// Prints the titles and `rows` rows. `row` is called twice for each index, first to measure, so
// that a hundred thousand rows need no memory.
void print_columns(Output& out, const std::vector<Column>& columns, std::size_t rows,
                   const std::function<std::vector<std::string>(std::size_t)>& row);
// The same as text, for a table that is small.
std::string to_columns(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace weightmap::cli
