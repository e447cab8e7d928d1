#include "runtime/formats/sets/file_names.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "runtime/base/bytes/decimal.hpp"

namespace weightmap::sets {
namespace {

constexpr std::size_t digits = 5;
constexpr std::string_view of = "-of-";

std::string padded(std::uint32_t number) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

}  // namespace

bool stays_below(std::string_view name) noexcept {
  if (name.empty() || name.find_first_of(std::string_view("\\:\0", 3)) != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::optional<ShardName> shard_name(std::string_view name, std::string_view extension) {
  constexpr std::size_t tail = 1 + digits + of.size() + digits;
  name.remove_suffix(extension.size());
  if (name.size() < tail) return std::nullopt;
  const std::string_view end = name.substr(name.size() - tail);
  if (end[0] != '-' || end.substr(1 + digits, of.size()) != of) return std::nullopt;
  const auto number_at = [end](std::size_t at) -> std::uint32_t {
    std::string_view text = end.substr(at, digits);
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
    return bytes::decimal(text);
  };
  const ShardName shard{name.substr(0, name.size() - tail), number_at(1),
                        number_at(1 + digits + of.size())};
  if (shard.number == bytes::no_number || shard.count == bytes::no_number) return std::nullopt;
  return shard;
}

std::string to_string(const ShardName& shard, std::string_view extension) {
  return std::string(shard.stem) + '-' + padded(shard.number) + std::string(of) +
         padded(shard.count) + std::string(extension);
}

std::string hint_about_cut(std::string_view name) {
  constexpr std::string_view marks[] = {".part-", ".part_", ".part", "-split-", "_split_"};
  const auto* const mark = std::ranges::find_if(
      marks, [name](std::string_view each) { return name.find(each) != name.npos; });
  if (mark == std::end(marks)) return {};
  const std::size_t at = name.rfind(*mark);
  const std::string whole(name.substr(0, at));
  const std::string front = whole + std::string(*mark);
  const std::string_view rest = name.substr(at + mark->size());
  std::string parts = front + "*";  // "a", "b" and so on, which a shell sorts
  if (const std::size_t total = rest.find("of"); total != rest.npos) {
    const std::string_view count = rest.substr(total + 2);
    if (bytes::decimal(rest.substr(0, total)) == bytes::no_number ||
        bytes::decimal(count) == bytes::no_number)
      return {};
    parts = front + "{1.." + std::string(count) + "}of" + std::string(count);
    if (count == "2") parts = front + "1of2 " + front + "2of2";
  } else if (rest.empty() || rest.size() > 3 ||
             (rest.find_first_not_of("0123456789") != rest.npos &&
              (rest.size() > 2 ||
               rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != rest.npos))) {
    return {};
  }
  return "; its name says that it is a part of a file that was cut: join the parts first (cat " +
         parts + " > " + whole + ")";
}

}  // namespace weightmap::sets
