#include "runtime/base/pickle/opcode.hpp"

#include <cstdio>

#include "runtime/base/bytes/counted.hpp"

namespace weightmap::pickle {

std::string opcode_name(std::uint8_t opcode) {
  switch (opcode) {
#define WEIGHTMAP_OPCODE(name, byte, kind, width) \
  case byte:                                      \
    return #name;
    WEIGHTMAP_PICKLE_OPCODES(WEIGHTMAP_OPCODE)
#undef WEIGHTMAP_OPCODE
    default:
      char text[8];
      std::snprintf(text, sizeof text, "0x%02x", opcode);
      return text;
  }
}

std::string short_of(std::uint8_t opcode, std::uint64_t needed, std::uint64_t left) {
  return "opcode " + opcode_name(opcode) + " needs " + bytes::counted(needed, "byte") +
         ", the pickle has " + std::to_string(left) + " left";
}

}  // namespace weightmap::pickle
