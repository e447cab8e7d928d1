#include "tools/cat/array_text.hpp"

#include <string_view>

namespace weightmap::cli {
namespace {

constexpr std::size_t line_width = 75;

bool has_gap(std::int64_t size, bool shortened) { return shortened && size > 2 * edge_items; }

class Writer {
 public:
  Writer(std::span<const std::int64_t> shape, bool shortened, const std::vector<std::string>& words)
      : shape_(shape), shortened_(shortened), next_(words.begin()) {}

  // Recursion is as deep as the tensor has dimensions, which Limits::rank bounds.
  std::string write(std::size_t axis) {
    return axis + 1 == shape_.size() ? row(axis) : block(axis);
  }

 private:
  // Returns the index of the gap among the shown items; past their end if there is none.
  std::size_t gap_at(std::size_t axis) const {
    return has_gap(shape_[axis], shortened_) ? static_cast<std::size_t>(edge_items)
                                             : static_cast<std::size_t>(-1);
  }

  std::string row(std::size_t axis) {
    const std::string indent(axis + 1, ' ');
    const std::size_t count = shown_indices(shape_[axis], shortened_).size();
    // Every closing bracket takes a column from the words.
    const std::size_t limit = line_width - (axis + 1);
    std::string text;
    std::string line = indent;
    for (std::size_t i = 0; i < count; ++i) {
      if (i == gap_at(axis)) append(text, line, "...", limit, indent), line += " ";
      append(text, line, *next_++, limit, indent);
      if (i + 1 < count) line += " ";
    }
    return "[" + (text + line).substr(indent.size()) + "]";
  }

  // Starts a new line if `word` does not fit, unless the line is still empty.
  static void append(std::string& text, std::string& line, std::string_view word, std::size_t limit,
                     const std::string& indent) {
    if (line.size() + word.size() > limit && line.size() > indent.size()) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line = indent;
    }
    line += word;
  }

  std::string block(std::size_t axis) {
    const std::string indent(axis + 1, ' ');
    const std::string separator(shape_.size() - axis - 1, '\n');
    const std::size_t count = shown_indices(shape_[axis], shortened_).size();
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) text += separator + indent;
      if (i == gap_at(axis)) text += "..." + separator + indent;
      text += write(axis + 1);
    }
    return text + "]";
  }

  std::span<const std::int64_t> shape_;
  bool shortened_;
  std::vector<std::string>::const_iterator next_;
};

}  // namespace

std::vector<std::int64_t> shown_indices(std::int64_t size, bool shortened) {
  std::vector<std::int64_t> indices;
  const bool gap = has_gap(size, shortened);
  for (std::int64_t i = 0; i < size; ++i) {
    if (gap && i == edge_items) i = size - edge_items;
    indices.push_back(i);
  }
  return indices;
}

std::string array_text(std::span<const std::int64_t> shape, bool shortened,
                       const std::vector<std::string>& words) {
  return Writer(shape, shortened, words).write(0);
}

}  // namespace weightmap::cli
