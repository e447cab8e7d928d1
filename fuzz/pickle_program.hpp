// A pickle as a list of opcodes, for mutation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightmap::fuzz {

struct Instruction {
  std::uint8_t opcode;
  std::string operand;  // without its length; lines include their line feeds
};

// Returns all opcodes of Python's pickle.
std::span<const std::uint8_t> known_opcodes() noexcept;

// Splits up to the end, or to the first byte that is not valid; the rest becomes the last
// instruction's operand.
std::vector<Instruction> split(std::span<const std::byte> pickle);
std::vector<std::byte> join(std::span<const Instruction> program);

}  // namespace weightmap::fuzz
