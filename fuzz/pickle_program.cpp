#include "fuzz/pickle_program.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "runtime/bytes/byte_sink.hpp"
#include "runtime/pickle/opcode.hpp"

namespace weightmap::fuzz {
namespace {

using namespace pickle;

constexpr auto table = std::to_array<KnownOpcode>({
    {op_MARK, Operand::none},
    {op_STOP, Operand::none},
    {op_POP, Operand::none},
    {op_POP_MARK, Operand::none},
    {op_DUP, Operand::none},
    {op_FLOAT, Operand::line},
    {op_INT, Operand::line},
    {op_BININT, Operand::byte_4},
    {op_BININT1, Operand::byte_1},
    {op_LONG, Operand::line},
    {op_BININT2, Operand::byte_2},
    {op_NONE, Operand::none},
    {op_PERSID, Operand::line},
    {op_BINPERSID, Operand::none},
    {op_REDUCE, Operand::none},
    {op_STRING, Operand::line},
    {op_BINSTRING, Operand::sized_4},
    {op_SHORT_BINSTRING, Operand::sized_1},
    {op_UNICODE, Operand::line},
    {op_BINUNICODE, Operand::sized_4},
    {op_APPEND, Operand::none},
    {op_BUILD, Operand::none},
    {op_GLOBAL, Operand::lines},
    {op_DICT, Operand::none},
    {op_EMPTY_DICT, Operand::none},
    {op_APPENDS, Operand::none},
    {op_GET, Operand::line},
    {op_BINGET, Operand::byte_1},
    {op_INST, Operand::lines},
    {op_LONG_BINGET, Operand::byte_4},
    {op_LIST, Operand::none},
    {op_EMPTY_LIST, Operand::none},
    {op_OBJ, Operand::none},
    {op_PUT, Operand::line},
    {op_BINPUT, Operand::byte_1},
    {op_LONG_BINPUT, Operand::byte_4},
    {op_SETITEM, Operand::none},
    {op_TUPLE, Operand::none},
    {op_EMPTY_TUPLE, Operand::none},
    {op_SETITEMS, Operand::none},
    {op_BINFLOAT, Operand::byte_8},
    {op_PROTO, Operand::byte_1},
    {op_NEWOBJ, Operand::none},
    {op_EXT1, Operand::byte_1},
    {op_EXT2, Operand::byte_2},
    {op_EXT4, Operand::byte_4},
    {op_TUPLE1, Operand::none},
    {op_TUPLE2, Operand::none},
    {op_TUPLE3, Operand::none},
    {op_NEWTRUE, Operand::none},
    {op_NEWFALSE, Operand::none},
    {op_LONG1, Operand::sized_1},
    {op_LONG4, Operand::sized_4},
    {op_BINBYTES, Operand::sized_4},
    {op_SHORT_BINBYTES, Operand::sized_1},
    {op_SHORT_BINUNICODE, Operand::sized_1},
    {op_BINUNICODE8, Operand::sized_8},
    {op_BINBYTES8, Operand::sized_8},
    {op_EMPTY_SET, Operand::none},
    {op_ADDITEMS, Operand::none},
    {op_FROZENSET, Operand::none},
    {op_NEWOBJ_EX, Operand::none},
    {op_STACK_GLOBAL, Operand::none},
    {op_MEMOIZE, Operand::none},
    {op_FRAME, Operand::byte_8},
    {op_BYTEARRAY8, Operand::sized_8},
    {op_NEXT_BUFFER, Operand::none},
    {op_READONLY_BUFFER, Operand::none},
});

std::size_t width_of(Operand operand) noexcept {
  switch (operand) {
    case Operand::byte_1:
    case Operand::sized_1:
      return 1;
    case Operand::byte_2:
      return 2;
    case Operand::byte_4:
    case Operand::sized_4:
      return 4;
    case Operand::byte_8:
    case Operand::sized_8:
      return 8;
    default:
      return 0;
  }
}

bool is_sized(Operand operand) noexcept { return operand >= Operand::sized_1; }

std::optional<std::size_t> end_of_line(std::string_view text, std::size_t from) noexcept {
  const std::size_t end = text.find('\n', from);
  if (end == std::string_view::npos) return std::nullopt;
  return end + 1;
}

// How long the operand at the front of `rest` is, and how much of that is its length.
struct Extent {
  std::size_t skipped;
  std::size_t length;
};
std::optional<Extent> extent_of(Operand operand, std::string_view rest) noexcept {
  if (operand == Operand::none) return Extent{0, 0};
  if (operand == Operand::line || operand == Operand::lines) {
    std::optional<std::size_t> end = end_of_line(rest, 0);
    if (end && operand == Operand::lines) end = end_of_line(rest, *end);
    if (!end) return std::nullopt;
    return Extent{0, *end};
  }
  const std::size_t width = width_of(operand);
  if (rest.size() < width) return std::nullopt;
  if (!is_sized(operand)) return Extent{0, width};
  std::uint64_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(rest[i]);
  if (length > rest.size() - width) return std::nullopt;
  return Extent{width, static_cast<std::size_t>(length)};
}

}  // namespace

std::span<const KnownOpcode> known_opcodes() noexcept { return table; }

Operand operand_of(std::uint8_t opcode) noexcept {
  const auto* const known = std::find_if(
      table.begin(), table.end(), [opcode](const KnownOpcode& of) { return of.opcode == opcode; });
  return known == table.end() ? Operand::none : known->operand;
}

std::vector<Instruction> split(std::span<const std::byte> pickle) {
  std::string_view rest(reinterpret_cast<const char*>(pickle.data()), pickle.size());
  std::vector<Instruction> program;
  while (!rest.empty()) {
    const auto opcode = static_cast<std::uint8_t>(rest.front());
    rest.remove_prefix(1);
    const std::optional<Extent> extent = extent_of(operand_of(opcode), rest);
    if (!extent) {
      program.push_back({opcode, std::string(rest)});
      break;
    }
    program.push_back({opcode, std::string(rest.substr(extent->skipped, extent->length))});
    rest.remove_prefix(extent->skipped + extent->length);
  }
  return program;
}

std::vector<std::byte> join(std::span<const Instruction> program) {
  std::vector<std::byte> pickle;
  bytes::ByteSink sink(pickle);
  for (const Instruction& instruction : program) {
    const Operand operand = operand_of(instruction.opcode);
    pickle.push_back(static_cast<std::byte>(instruction.opcode));
    if (is_sized(operand))
      for (std::size_t i = 0; i < width_of(operand); ++i)
        pickle.push_back(static_cast<std::byte>(instruction.operand.size() >> (8 * i)));
    sink.text(instruction.operand);
  }
  return pickle;
}

}  // namespace weightmap::fuzz
