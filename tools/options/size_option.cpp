#include "tools/options/size_option.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

// "", "b", "k", "kb", "ki", "kib", "m" ... as powers of two.
std::optional<unsigned> shift_of(std::string_view unit) noexcept {
  constexpr std::string_view letters = "kmgtpe";
  if (unit.empty() || unit == "b") return 0;
  const std::size_t letter = letters.find(unit.front());
  const std::string_view rest = unit.substr(1);
  const bool is_known = rest.empty() || rest == "b" || rest == "i" || rest == "ib";
  if (letter == letters.npos || !is_known) return std::nullopt;
  return 10 * (static_cast<unsigned>(letter) + 1);
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lowered;
}

std::optional<std::uint64_t> whole_size(std::string_view digits, unsigned shift) noexcept {
  std::uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

std::optional<std::uint64_t> broken_size(std::string_view digits, unsigned shift) noexcept {
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return std::nullopt;
  number *= static_cast<double>(std::uint64_t{1} << shift);
  if (number >= 0x1p64) return std::nullopt;
  return static_cast<std::uint64_t>(number);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::size_t unit = std::min(text.find_first_not_of(' ', end), text.size());
  const std::string_view digits = text.substr(0, end);
  const std::optional<unsigned> shift = shift_of(lower(text.substr(unit)));
  if (!shift) return std::nullopt;
  return digits.find('.') == digits.npos ? whole_size(digits, *shift) : broken_size(digits, *shift);
}

}  // namespace

void add_size_option(CLI::App& command, const std::string& name,
                     std::function<void(std::uint64_t)> set, const std::string& help) {
  const auto read = [set = std::move(set), name](const std::string& text) {
    const std::optional<std::uint64_t> size = parse_size(text);
    if (!size)
      throw CLI::ValidationError(
          name, "must be a size such as 4096, 64KiB or 1.5G, not \"" + printable(text) + "\"");
    if (*size == 0) throw CLI::ValidationError(name, "must be at least 1 byte");
    set(*size);
  };
  command.add_option_function<std::string>(name, read, help)->type_name("SIZE");
}

}  // namespace weightmap::cli
