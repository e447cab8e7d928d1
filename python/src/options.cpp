#include "python/src/options.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "python/src/errors.hpp"
#include "python/src/text.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

template <class Word, std::size_t N>
std::optional<Word> read_word(std::string_view option, nb::handle value,
                              const std::array<Word, N>& words) {
  if (value.is_none()) return std::nullopt;
  std::string known;
  const std::string text = nb::isinstance<nb::str>(value) ? to_utf8(value) : std::string();
  for (Word word : words) {
    if (to_string(word) == text) return word;
    known += known.empty() ? "" : ", ";
    known += '"' + std::string(to_string(word)) + '"';
  }
  if (std::is_same_v<Word, Protection> && text == "copy") known += copy_protection_hint;
  raise(ErrorCode::invalid_argument,
        std::string(option) + " is " + nb::repr(value).c_str() + ", expected one of " + known);
}

std::optional<bool> read_bool(std::string_view option, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  if (!nb::isinstance<nb::bool_>(value))
    raise(ErrorCode::invalid_argument,
          std::string(option) + " is " + nb::repr(value).c_str() + ", expected True or False");
  return nb::cast<bool>(value);
}

void read_option(OpenOptions& options, std::string_view name, nb::handle value) {
  if (name == "sharing")
    options.sharing = read_word(name, value, std::array{Sharing::shared, Sharing::private_});
  else if (name == "verify")
    options.verify =
        read_word(name, value, std::array{Verify::chain, Verify::headers, Verify::crc});
  else if (name == "endianness")
    options.missing_byte_order =
        read_word(name, value, std::array{ByteOrder::little, ByteOrder::big, ByteOrder::native});
  else if (name == "protection")
    options.protection = read_word(
        name, value, std::array{Protection::map, Protection::guard, Protection::snapshot});
  else if (name == "writable")
    options.writable = read_bool(name, value);
  else if (name == "populate")
    options.populate = read_bool(name, value);
  else if (name == "no_reserve")
    options.no_reserve = read_bool(name, value);
  else if (name == "locked")
    options.locked = read_bool(name, value);
  else if (name == "huge_pages")
    options.huge_pages = read_bool(name, value);
  else if (name == "shared_catalog")
    options.shared_catalog = read_bool(name, value);
  else
    raise(ErrorCode::invalid_argument, "there is no option " + std::string(name));
}

}  // namespace

OpenOptions read_options(const nb::dict& options) {
  OpenOptions read;
  for (const auto& [name, value] : options) read_option(read, nb::cast<const char*>(name), value);
  return read;
}

}  // namespace weightmap::python
