// A pickle as its opcodes, to be changed one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightmap::fuzz {

// What follows the opcode's byte.
enum class Operand : std::uint8_t {
  none,
  byte_1,  // so many bytes
  byte_2,
  byte_4,
  byte_8,
  line,     // up to a line feed
  lines,    // two of them
  sized_1,  // a length of so many bytes, and what it says
  sized_4,
  sized_8,
};

struct Instruction {
  std::uint8_t opcode;
  std::string operand;  // without its length; lines with their line feeds
};

struct KnownOpcode {
  std::uint8_t opcode;
  Operand operand;
};
// All that Python's pickle has.
std::span<const KnownOpcode> known_opcodes() noexcept;
Operand operand_of(std::uint8_t opcode) noexcept;

// Up to the end, or to where it is no pickle; what is left over is an instruction's last operand.
std::vector<Instruction> split(std::span<const std::byte> pickle);
std::vector<std::byte> join(std::span<const Instruction> program);

}  // namespace weightmap::fuzz
