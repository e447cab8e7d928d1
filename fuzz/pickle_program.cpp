#include "fuzz/pickle_program.hpp"

#include <array>

#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/pickle/operand.hpp"

namespace weightmap::fuzz {

using pickle::OperandForm;
using pickle::OperandKind;

std::span<const std::uint8_t> known_opcodes() noexcept {
#define WEIGHTMAP_OPCODE(name, byte, kind, width) pickle::op_##name,
  static constexpr auto known =
      std::to_array<std::uint8_t>({WEIGHTMAP_PICKLE_OPCODES(WEIGHTMAP_OPCODE)});
#undef WEIGHTMAP_OPCODE
  return known;
}

std::vector<Instruction> split(std::span<const std::byte> pickle) {
  const auto* at = reinterpret_cast<const unsigned char*>(pickle.data());
  const auto* const end = at + pickle.size();
  std::vector<Instruction> program;
  while (at != end) {
    const std::uint8_t opcode = *at++;
    const OperandForm form = pickle::operand_forms[opcode];
    pickle::MemoryOperands source(at, end);
    pickle::Operand operand;
    if (!read_operand(source, form, operand)) {
      program.push_back({opcode, std::string(at, end)});
      break;
    }
    const std::size_t length_bytes = form.kind == OperandKind::sized ? form.width : 0;
    program.push_back({opcode, std::string(at + length_bytes, source.at)});
    at = source.at;
  }
  return program;
}

std::vector<std::byte> join(std::span<const Instruction> program) {
  std::vector<std::byte> pickle;
  bytes::ByteSink sink(pickle);
  for (const Instruction& instruction : program) {
    const OperandForm form = pickle::operand_forms[instruction.opcode];
    pickle.push_back(static_cast<std::byte>(instruction.opcode));
    if (form.kind == OperandKind::sized)
      for (std::size_t i = 0; i < form.width; ++i)
        pickle.push_back(static_cast<std::byte>(instruction.operand.size() >> (8 * i)));
    sink.text(instruction.operand);
  }
  return pickle;
}

}  // namespace weightmap::fuzz
