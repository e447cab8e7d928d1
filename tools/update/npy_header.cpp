#include "tools/update/npy_header.hpp"

#include <charconv>
#include <optional>
#include <system_error>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

// The few forms of Python literals that numpy writes.
class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  std::optional<NpyHeader> header() {
    bool seen[3] = {};
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      const std::optional<std::string> key = string();
      if (!key || !take(':') || !value(*key, seen)) return std::nullopt;
      if (!take(',') && !next_is('}')) return std::nullopt;
    }
    skip_blanks();
    if (!rest_.empty() || !seen[0] || !seen[1] || !seen[2]) return std::nullopt;
    return header_;
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
  }
  bool next_is(char c) {
    skip_blanks();
    return rest_.starts_with(c);
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> string() {
    const char quote = take('\'') ? '\'' : take('"') ? '"' : '\0';
    const std::size_t end = rest_.find(quote);
    if (quote == '\0' || end == rest_.npos) return std::nullopt;
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool shape() {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_blanks();
      std::int64_t size = 0;
      const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) return false;
      rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
      header_.shape.push_back(size);
      if (!take(',') && !next_is(')')) return false;
    }
    return true;
  }
  bool value(std::string_view key, bool (&seen)[3]) {
    constexpr std::string_view keys[] = {"descr", "fortran_order", "shape"};
    for (int i = 0; i < 3; ++i) {
      if (key != keys[i]) continue;
      if (seen[i]) return false;
      seen[i] = true;
      if (i == 2) return shape();
      if (i == 1) return (header_.fortran_order = take("True")) || take("False");
      std::optional<std::string> descr = string();
      if (descr) header_.descr = std::move(*descr);
      return descr.has_value();
    }
    return false;
  }

  std::string_view rest_;
  NpyHeader header_;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) {
  if (std::optional<NpyHeader> header = Parser(text).header()) return *std::move(header);
  return failure(
      ErrorCode::invalid_argument,
      "the header of the .npy file is not a dict of one descr, fortran_order and shape: " +
          printable(text.substr(0, 200)));
}

}  // namespace weightmap::cli
