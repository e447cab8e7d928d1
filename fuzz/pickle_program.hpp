// A pickle as its opcodes, to be changed one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightmap::fuzz {

struct Instruction {
  std::uint8_t opcode;
  std::string operand;  // without its length; lines with their line feeds
};

// All that Python's pickle has.
std::span<const std::uint8_t> known_opcodes() noexcept;

// Up to the end, or to where it is no pickle; what is left over is an instruction's last operand.
std::vector<Instruction> split(std::span<const std::byte> pickle);
std::vector<std::byte> join(std::span<const Instruction> program);

}  // namespace weightmap::fuzz
