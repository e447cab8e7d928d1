#include "tools/support/columns.hpp"

#include <algorithm>
#include <array>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using Cells = std::vector<std::string>;

// The width of a column. A few long cells shift their own lines instead of moving every other
// line's columns off the screen: of cells beyond the usual width as many as a tenth of the rows,
// and all beyond the widest.
class Width {
 public:
  void measure(const std::string& cell) {
    ++rows_;
    if (const std::size_t cells = width(cell); cells <= widest) ++rows_of_[cells];
  }
  std::size_t width_of_column() const noexcept {
    std::size_t column = widest, shifted = rows_of_[widest];
    while (column > usual && shifted <= rows_ / most_shifted) shifted += rows_of_[--column];
    while (column > 0 && rows_of_[column] == 0) --column;
    return column;
  }

 private:
  static constexpr std::size_t usual = 80;
  static constexpr std::size_t widest = 256;
  static constexpr std::size_t most_shifted = 10;  // one row in this many

  std::size_t rows_ = 0;
  std::array<std::size_t, widest + 1> rows_of_{};  // by width
};

using Widths = std::vector<Width>;

void measure(Widths& widths, const Cells& cells) {
  for (std::size_t i = 0; i < widths.size(); ++i) widths[i].measure(cells[i]);
}

// Puts two spaces between columns, none at the end of the line.
std::string line(const std::vector<Column>& columns, const Widths& widths, const Cells& cells) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t column = widths[i].width_of_column();
    const std::string gap(column - std::min(column, width(cells[i])), ' ');
    const bool last = i + 1 == cells.size();
    if (i > 0) out += "  ";
    if (columns[i].align == Column::right)
      out += gap + cells[i];
    else
      out += cells[i] + (last ? "" : gap);
  }
  return out + "\n";
}

Cells titles(const std::vector<Column>& columns) {
  Cells out;
  for (const Column& column : columns) out.push_back(column.title);
  return out;
}

// Replaces the spaces in `cell`, whose control characters are escaped already.
std::string field(const std::string& cell, std::string_view blank) {
  std::string out;
  for (const char c : cell) {
    if (c == ' ')
      out += blank;
    else
      out += c;
  }
  return out;
}

std::string tsv_line(const Cells& cells, std::string_view blank) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i)
    out += (i > 0 ? "\t" : "") + field(cells[i], blank);
  return out + "\n";
}

}  // namespace

std::string TableStyle::bytes(std::uint64_t number) const {
  return exact_bytes || tsv ? std::to_string(number) : human_bytes(number);
}

std::string TableStyle::dims(std::span<const std::int64_t> values) const {
  const std::string text = cli::dims(values);
  return tsv ? field(text, "") : text;
}

void print_columns(Output& out, const TableStyle& style, const std::vector<Column>& columns,
                   std::size_t rows,
                   const std::function<std::vector<std::string>(std::size_t)>& row) {
  if (style.tsv) {
    out.write(tsv_line(titles(columns), "_"));
    for (std::size_t i = 0; i < rows && !out.failed(); ++i) out.write(tsv_line(row(i), "\\x20"));
    return;
  }
  Widths widths(columns.size());
  measure(widths, titles(columns));
  for (std::size_t i = 0; i < rows; ++i) measure(widths, row(i));
  out.write(line(columns, widths, titles(columns)));
  for (std::size_t i = 0; i < rows && !out.failed(); ++i) out.write(line(columns, widths, row(i)));
}

std::string to_columns(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  Widths widths(columns.size());
  measure(widths, titles(columns));
  for (const Cells& row : rows) measure(widths, row);
  std::string out = line(columns, widths, titles(columns));
  for (const Cells& row : rows) out += line(columns, widths, row);
  return out;
}

}  // namespace weightmap::cli
