// Tar archives, header by header.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weightmap::test {

inline std::string padded(std::string text, std::size_t length) {
  text.resize(length);
  return text;
}

struct TarEntry {
  std::string name;
  std::string content;
  char type = '0';
  std::string size = {};  // the field, if it is not that of the content
  std::string prefix = {};
  std::string magic = std::string("ustar\00000", 8);
  char map_follows = '\0';
};

inline std::string octal(std::size_t number) {
  std::string digits;
  for (int shift = 30; shift >= 0; shift -= 3)
    digits += static_cast<char>('0' + (number >> shift & 7));
  return digits + '\0';
}

inline std::string header(const TarEntry& member) {
  std::string made = padded(member.name, 100) + padded("0000644", 8) + padded("", 16) +
                     padded(member.size.empty() ? octal(member.content.size()) : member.size, 12) +
                     padded("", 12) + "        " + member.type + padded("", 100) +
                     padded(member.magic, 8) + padded("", 80) + padded(member.prefix, 155) +
                     padded("", 12);
  made[482] = member.map_follows;
  unsigned sum = 0;
  for (const char c : made) sum += static_cast<unsigned char>(c);
  made.replace(148, 8, octal(sum).substr(5) + std::string("\0 ", 2), 0, 8);
  return made;
}

inline std::string block(const std::string& content) {
  return padded(content, (content.size() + 511) / 512 * 512);
}

inline std::string tar(const std::vector<TarEntry>& members) {
  std::string made;
  for (const TarEntry& member : members) made += header(member) + block(member.content);
  return made + padded("", 1024);
}

}  // namespace weightmap::test
