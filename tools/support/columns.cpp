#include "tools/support/columns.hpp"

#include <algorithm>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using Widths = std::vector<std::size_t>;

// A longer cell shifts its own line instead of moving every other line's columns off the screen.
constexpr std::size_t widest = 80;

void widen(Widths& widths, const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < widths.size(); ++i)
    if (const std::size_t cell = width(cells[i]); cell <= widest)
      widths[i] = std::max(widths[i], cell);
}

// Two spaces between columns, none at the end of the line.
std::string line(const std::vector<Column>& columns, const Widths& widths,
                 const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string gap(widths[i] - std::min(widths[i], width(cells[i])), ' ');
    const bool last = i + 1 == cells.size();
    if (i > 0) out += "  ";
    if (columns[i].align == Column::right)
      out += gap + cells[i];
    else
      out += cells[i] + (last ? "" : gap);
  }
  return out + "\n";
}

std::vector<std::string> titles(const std::vector<Column>& columns) {
  std::vector<std::string> out;
  for (const Column& column : columns) out.push_back(column.title);
  return out;
}

}  // namespace

void print_columns(Output& out, const std::vector<Column>& columns, std::size_t rows,
                   const std::function<std::vector<std::string>(std::size_t)>& row) {
  Widths widths(columns.size(), 0);
  widen(widths, titles(columns));
  for (std::size_t i = 0; i < rows; ++i) widen(widths, row(i));
  out.write(line(columns, widths, titles(columns)));
  for (std::size_t i = 0; i < rows && !out.failed(); ++i) out.write(line(columns, widths, row(i)));
}

std::string to_columns(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  Widths widths(columns.size(), 0);
  widen(widths, titles(columns));
  for (const std::vector<std::string>& row : rows) widen(widths, row);
  std::string out = line(columns, widths, titles(columns));
  for (const std::vector<std::string>& row : rows) out += line(columns, widths, row);
  return out;
}

}  // namespace weightmap::cli
