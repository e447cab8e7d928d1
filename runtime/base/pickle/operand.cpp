#include "runtime/base/pickle/operand.hpp"

#include "runtime/base/bytes/counted.hpp"

namespace weightmap::pickle {

std::string short_of(std::uint8_t opcode, std::uint64_t needed, std::uint64_t left) {
  return "opcode " + opcode_name(opcode) + " needs " + bytes::counted(needed, "byte") +
         ", the pickle has " + std::to_string(left) + " left";
}

}  // namespace weightmap::pickle
