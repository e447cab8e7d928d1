// Pickle opcodes by their names in Python's pickletools, and the form of their operands.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace weightmap::pickle {

enum class OperandKind : std::uint8_t {
  no_opcode,
  none,
  number,       // `width` bytes, little-endian
  extension,    // the same, for an object in a registry that only a running Python has
  sized,        // a length of `width` bytes, then as many bytes
  number_line,  // text up to a line feed
  text_line,
  name_line,
  two_names,  // two lines
};

struct OperandForm {
  OperandKind kind = OperandKind::no_opcode;
  std::uint8_t width = 0;
};

// X(name, byte, kind and width of the operand) for each opcode of Python's pickle.
#define WEIGHTMAP_PICKLE_OPCODES(X)   \
  X(MARK, '(', none, 0)               \
  X(STOP, '.', none, 0)               \
  X(POP, '0', none, 0)                \
  X(POP_MARK, '1', none, 0)           \
  X(DUP, '2', none, 0)                \
  X(FLOAT, 'F', number_line, 0)       \
  X(INT, 'I', number_line, 0)         \
  X(BININT, 'J', number, 4)           \
  X(BININT1, 'K', number, 1)          \
  X(LONG, 'L', number_line, 0)        \
  X(BININT2, 'M', number, 2)          \
  X(NONE, 'N', none, 0)               \
  X(PERSID, 'P', name_line, 0)        \
  X(BINPERSID, 'Q', none, 0)          \
  X(REDUCE, 'R', none, 0)             \
  X(STRING, 'S', text_line, 0)        \
  X(BINSTRING, 'T', sized, 4)         \
  X(SHORT_BINSTRING, 'U', sized, 1)   \
  X(UNICODE, 'V', text_line, 0)       \
  X(BINUNICODE, 'X', sized, 4)        \
  X(APPEND, 'a', none, 0)             \
  X(BUILD, 'b', none, 0)              \
  X(GLOBAL, 'c', two_names, 0)        \
  X(DICT, 'd', none, 0)               \
  X(EMPTY_DICT, '}', none, 0)         \
  X(APPENDS, 'e', none, 0)            \
  X(GET, 'g', number_line, 0)         \
  X(BINGET, 'h', number, 1)           \
  X(INST, 'i', two_names, 0)          \
  X(LONG_BINGET, 'j', number, 4)      \
  X(LIST, 'l', none, 0)               \
  X(EMPTY_LIST, ']', none, 0)         \
  X(OBJ, 'o', none, 0)                \
  X(PUT, 'p', number_line, 0)         \
  X(BINPUT, 'q', number, 1)           \
  X(LONG_BINPUT, 'r', number, 4)      \
  X(SETITEM, 's', none, 0)            \
  X(TUPLE, 't', none, 0)              \
  X(EMPTY_TUPLE, ')', none, 0)        \
  X(SETITEMS, 'u', none, 0)           \
  X(BINFLOAT, 'G', number, 8)         \
  /* protocol 2 */                    \
  X(PROTO, 0x80, number, 1)           \
  X(NEWOBJ, 0x81, none, 0)            \
  X(EXT1, 0x82, extension, 1)         \
  X(EXT2, 0x83, extension, 2)         \
  X(EXT4, 0x84, extension, 4)         \
  X(TUPLE1, 0x85, none, 0)            \
  X(TUPLE2, 0x86, none, 0)            \
  X(TUPLE3, 0x87, none, 0)            \
  X(NEWTRUE, 0x88, none, 0)           \
  X(NEWFALSE, 0x89, none, 0)          \
  X(LONG1, 0x8a, sized, 1)            \
  X(LONG4, 0x8b, sized, 4)            \
  /* protocol 3 */                    \
  X(BINBYTES, 'B', sized, 4)          \
  X(SHORT_BINBYTES, 'C', sized, 1)    \
  /* protocol 4 */                    \
  X(SHORT_BINUNICODE, 0x8c, sized, 1) \
  X(BINUNICODE8, 0x8d, sized, 8)      \
  X(BINBYTES8, 0x8e, sized, 8)        \
  X(EMPTY_SET, 0x8f, none, 0)         \
  X(ADDITEMS, 0x90, none, 0)          \
  X(FROZENSET, 0x91, none, 0)         \
  X(NEWOBJ_EX, 0x92, none, 0)         \
  X(STACK_GLOBAL, 0x93, none, 0)      \
  X(MEMOIZE, 0x94, none, 0)           \
  X(FRAME, 0x95, number, 8)           \
  /* protocol 5 */                    \
  X(BYTEARRAY8, 0x96, sized, 8)       \
  X(NEXT_BUFFER, 0x97, none, 0)       \
  X(READONLY_BUFFER, 0x98, none, 0)

#define WEIGHTMAP_OPCODE(name, byte, kind, width) op_##name = (byte),
enum Opcode : std::uint8_t { WEIGHTMAP_PICKLE_OPCODES(WEIGHTMAP_OPCODE) };
#undef WEIGHTMAP_OPCODE

// Indexed by the byte of the opcode.
inline constexpr std::array<OperandForm, 256> operand_forms = [] {
  std::array<OperandForm, 256> forms{};
#define WEIGHTMAP_OPCODE(name, byte, kind, width) forms[byte] = {OperandKind::kind, width};
  WEIGHTMAP_PICKLE_OPCODES(WEIGHTMAP_OPCODE)
#undef WEIGHTMAP_OPCODE
  return forms;
}();

// Returns "REDUCE", or "0xff" for a byte that is no opcode.
std::string opcode_name(std::uint8_t opcode);
// Returns "opcode BININT needs 4 bytes, the pickle has 2 left".
std::string short_of(std::uint8_t opcode, std::uint64_t needed, std::uint64_t left);

}  // namespace weightmap::pickle
