// Pickle opcodes by their names in Python's pickletools.
#pragma once

#include <cstdint>
#include <string>

namespace weightmap::pickle {

enum Opcode : std::uint8_t {
  op_MARK = '(',
  op_STOP = '.',
  op_POP = '0',
  op_POP_MARK = '1',
  op_DUP = '2',
  op_FLOAT = 'F',
  op_INT = 'I',
  op_BININT = 'J',
  op_BININT1 = 'K',
  op_LONG = 'L',
  op_BININT2 = 'M',
  op_NONE = 'N',
  op_PERSID = 'P',
  op_BINPERSID = 'Q',
  op_REDUCE = 'R',
  op_STRING = 'S',
  op_BINSTRING = 'T',
  op_SHORT_BINSTRING = 'U',
  op_UNICODE = 'V',
  op_BINUNICODE = 'X',
  op_APPEND = 'a',
  op_BUILD = 'b',
  op_GLOBAL = 'c',
  op_DICT = 'd',
  op_EMPTY_DICT = '}',
  op_APPENDS = 'e',
  op_GET = 'g',
  op_BINGET = 'h',
  op_INST = 'i',
  op_LONG_BINGET = 'j',
  op_LIST = 'l',
  op_EMPTY_LIST = ']',
  op_OBJ = 'o',
  op_PUT = 'p',
  op_BINPUT = 'q',
  op_LONG_BINPUT = 'r',
  op_SETITEM = 's',
  op_TUPLE = 't',
  op_EMPTY_TUPLE = ')',
  op_SETITEMS = 'u',
  op_BINFLOAT = 'G',
  // protocol 2
  op_PROTO = 0x80,
  op_NEWOBJ = 0x81,
  op_EXT1 = 0x82,
  op_EXT2 = 0x83,
  op_EXT4 = 0x84,
  op_TUPLE1 = 0x85,
  op_TUPLE2 = 0x86,
  op_TUPLE3 = 0x87,
  op_NEWTRUE = 0x88,
  op_NEWFALSE = 0x89,
  op_LONG1 = 0x8a,
  op_LONG4 = 0x8b,
  // protocol 3
  op_BINBYTES = 'B',
  op_SHORT_BINBYTES = 'C',
  // protocol 4
  op_SHORT_BINUNICODE = 0x8c,
  op_BINUNICODE8 = 0x8d,
  op_BINBYTES8 = 0x8e,
  op_EMPTY_SET = 0x8f,
  op_ADDITEMS = 0x90,
  op_FROZENSET = 0x91,
  op_NEWOBJ_EX = 0x92,
  op_STACK_GLOBAL = 0x93,
  op_MEMOIZE = 0x94,
  op_FRAME = 0x95,
  // protocol 5
  op_BYTEARRAY8 = 0x96,
  op_NEXT_BUFFER = 0x97,
  op_READONLY_BUFFER = 0x98,
};

// "REDUCE"; "0xff" for a byte that is no opcode.
std::string opcode_name(std::uint8_t opcode);

}  // namespace weightmap::pickle
