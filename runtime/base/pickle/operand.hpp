// Reads the operand of an opcode from any source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/base/pickle/opcode.hpp"

namespace weightmap::pickle {

struct Operand {
  std::uint64_t number = 0;      // or the length of `text`
  std::string_view text;         // the counted bytes, or a line without its line feed
  std::string_view second_line;  // of two names
};

// Reads an operand of this form. The source has these functions, which return false if it ends
// first:
//
//   bool number(std::size_t width, std::uint64_t& value);  // little-endian
//   bool text(std::uint64_t length, std::string_view& text);
//   bool line(OperandKind kind, std::string_view& line);  // skips its line feed
template <class Source>
bool read_operand(Source& source, OperandForm form, Operand& operand) {
  switch (form.kind) {
    case OperandKind::number:
    case OperandKind::extension:
      return source.number(form.width, operand.number);
    case OperandKind::sized:
      return source.number(form.width, operand.number) && source.text(operand.number, operand.text);
    case OperandKind::number_line:
    case OperandKind::text_line:
    case OperandKind::name_line:
      return source.line(form.kind, operand.text);
    case OperandKind::two_names:
      return source.line(form.kind, operand.text) && source.line(form.kind, operand.second_line);
    default:
      return true;
  }
}

// A source of operands in memory. `at` is the next byte to read, also after a failure.
class MemoryOperands {
 public:
  using Byte = unsigned char;

  // Maximum lengths of a line, without its line feed.
  struct LineLimits {
    std::size_t number;
    std::size_t name;
  };

  MemoryOperands(const Byte* first, const Byte* last,
                 const LineLimits& limits = {max, max}) noexcept
      : at(first), end_(last), limits_(limits) {}

  bool number(std::size_t width, std::uint64_t& value) noexcept {
    if (!has(width)) return false;
    value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::uint64_t{at[i]} << (8 * i);
    at += width;
    return true;
  }
  bool text(std::uint64_t length, std::string_view& text) noexcept {
    if (!has(length)) return false;
    text = view(length);
    at += length;
    return true;
  }
  bool line(OperandKind kind, std::string_view& line) noexcept {
    const std::size_t most = kind == OperandKind::text_line     ? max
                             : kind == OperandKind::number_line ? limits_.number
                                                                : limits_.name;
    searched = most < left() ? most + 1 : left();
    const void* const newline = std::memchr(at, '\n', searched);
    if (newline == nullptr) return false;
    line = view(static_cast<std::size_t>(static_cast<const Byte*>(newline) - at));
    at += line.size() + 1;
    return true;
  }

  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at); }

  const Byte* at;
  // The cause of a failure: the bytes that were needed, or searched for the end of a line.
  std::uint64_t needed = 0;
  std::size_t searched = 0;

 private:
  static constexpr std::size_t max = static_cast<std::size_t>(-1);

  bool has(std::uint64_t count) noexcept {
    needed = count;
    return count <= left();
  }
  std::string_view view(std::uint64_t length) const noexcept {
    return {reinterpret_cast<const char*>(at), static_cast<std::size_t>(length)};
  }

  const Byte* end_;
  LineLimits limits_;
};

}  // namespace weightmap::pickle
