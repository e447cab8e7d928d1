#include "runtime/sets/shard_name.hpp"

#include <algorithm>

#include "runtime/bytes/decimal.hpp"

namespace weightmap::sets {
namespace {

constexpr std::size_t digits = 5;
constexpr std::string_view of = "-of-";

std::string padded(std::uint32_t number) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

}  // namespace

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
  const std::size_t part = name.rfind(".part"), total = name.rfind("of");
  constexpr std::size_t part_length = 5, of_length = 2;
  if (part == name.npos || total == name.npos || total < part + part_length) return {};
  const std::string_view number = name.substr(part + part_length, total - part - part_length);
  const std::string_view count = name.substr(total + of_length);
  if (bytes::decimal(number) == bytes::no_number || bytes::decimal(count) == bytes::no_number)
    return {};
  return "; its name says that it is part " + std::string(number) + " of " + std::string(count) +
         " of a file that was cut: join them first (cat *.part1of" + std::string(count) +
         " ... > whole)";
}

}  // namespace weightmap::sets
