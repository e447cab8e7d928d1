#include "runtime/base/pickle/opcode.hpp"

#include <cstdio>

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

}  // namespace weightmap::pickle
