#include "fuzz/pickle_mutator.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/mutation.hpp"
#include "runtime/base/bytes/byte_sink.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/pickle/operand.hpp"

namespace weightmap::fuzz {
namespace {

struct Instruction {
  std::uint8_t opcode;
  std::string operand;  // without its length; lines include their line feeds
};

using Program = std::vector<Instruction>;

// Returns all opcodes of Python's pickle.
std::span<const std::uint8_t> known_opcodes() noexcept {
#define WEIGHTMAP_OPCODE(name, byte, kind, width) pickle::op_##name,
  static constexpr auto known =
      std::to_array<std::uint8_t>({WEIGHTMAP_PICKLE_OPCODES(WEIGHTMAP_OPCODE)});
#undef WEIGHTMAP_OPCODE
  return known;
}

// Splits up to the end, or to the first byte that is not valid; the rest becomes the last
// instruction's operand.
Program split(std::span<const std::byte> pickle) {
  const auto* at = reinterpret_cast<const unsigned char*>(pickle.data());
  const auto* const end = at + pickle.size();
  Program program;
  while (at != end) {
    const std::uint8_t opcode = *at++;
    const pickle::OperandForm form = pickle::operand_forms[opcode];
    pickle::MemoryOperands source(at, end);
    pickle::Operand operand;
    if (!read_operand(source, form, operand)) {
      program.push_back({opcode, std::string(at, end)});
      break;
    }
    const std::size_t length_bytes = form.kind == pickle::OperandKind::sized ? form.width : 0;
    program.push_back({opcode, std::string(at + length_bytes, source.at)});
    at = source.at;
  }
  return program;
}

std::vector<std::byte> join(const Program& program) {
  std::vector<std::byte> pickle;
  bytes::ByteSink sink(pickle);
  for (const Instruction& instruction : program) {
    const pickle::OperandForm form = pickle::operand_forms[instruction.opcode];
    pickle.push_back(static_cast<std::byte>(instruction.opcode));
    if (form.kind == pickle::OperandKind::sized)
      for (std::size_t i = 0; i < form.width; ++i)
        pickle.push_back(static_cast<std::byte>(instruction.operand.size() >> (8 * i)));
    sink.text(instruction.operand);
  }
  return pickle;
}

// The content of real files: names with a meaning for torch readers, dtypes and keys.
constexpr auto globals = std::to_array<std::string_view>({
    "torch._utils\n_rebuild_tensor_v2\n",
    "torch._utils\n_rebuild_tensor_v3\n",
    "torch._utils\n_rebuild_tensor\n",
    "torch._utils\n_rebuild_parameter\n",
    "torch._utils\n_rebuild_parameter_with_state\n",
    "torch._utils\n_rebuild_qtensor\n",
    "torch._utils\n_rebuild_sparse_tensor\n",
    "torch._utils\n_rebuild_nested_tensor\n",
    "torch._utils\n_rebuild_meta_tensor_no_storage\n",
    "torch._utils\n_rebuild_wrapper_subclass\n",
    "torch._utils\n_rebuild_device_tensor_from_numpy\n",
    "torch._utils\n_rebuild_device_tensor_from_cpu_tensor\n",
    "torch._tensor\n_rebuild_from_type_v2\n",
    "torch.nn.parameter\nParameter\n",
    "torch.nn.parameter\nBuffer\n",
    "torch.storage\nUntypedStorage\n",
    "torch.storage\n_load_from_bytes\n",
    "torch\nFloatStorage\n",
    "torch\nLongStorage\n",
    "torch\nQInt8Storage\n",
    "torch\nfloat32\n",
    "torch\nuint16\n",
    "torch\nper_tensor_affine\n",
    "torch\nper_channel_affine\n",
    "torch\nsparse_coo\n",
    "torch\nsparse_csr\n",
    "torch\nSize\n",
    "torch\ndevice\n",
    "torch\nTensor\n",
    "torch.serialization\n_get_layout\n",
    "torch.jit._pickle\nbuild_intlist\n",
    "torch.jit._pickle\nbuild_tensorlist\n",
    "torch.jit._pickle\nrestore_type_tag\n",
    "torch._C\n_nn\n",
    "__torch__\nModel\n",
    "__torch__.torch.nn.modules.linear\nLinear\n",
    "collections\nOrderedDict\n",
    "collections\nCounter\n",
    "__builtin__\nset\n",
    "builtins\ngetattr\n",
    "builtins\nbytearray\n",
    "_codecs\nencode\n",
    "copyreg\n_reconstructor\n",
    "copy_reg\n_reconstructor\n",
    "numpy.core.multiarray\n_reconstruct\n",
    "numpy._core.multiarray\nscalar\n",
    "numpy\ndtype\n",
    "posix\nsystem\n",
});
constexpr auto texts = std::to_array<std::string_view>(
    {"", "0", "1", "00", "-1", "storage", "cpu", "cuda:0", "weight", "a.b", "latin1", "f4", "<f4",
     "constants", "18446744073709551616", "\xed\xa0\x80", "\xff"});
constexpr auto lines =
    std::to_array<std::string_view>({"0\n", "1\n", "00\n", "01\n", "-1\n", "1L\n", "1.5\n", "nan\n",
                                     "'a'\n", "99999999999999999999\n", "\\u0041\n"});

std::string little_endian(std::uint64_t value, std::size_t width) {
  std::string bytes;
  for (std::size_t i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

template <class Texts>
std::string one_of(const Texts& from, Random& random) {
  return std::string(from[random.below(from.size())]);
}

std::string make_operand(std::uint8_t opcode, Random& random) {
  const pickle::OperandForm form = pickle::operand_forms[opcode];
  switch (form.kind) {
    case pickle::OperandKind::no_opcode:
    case pickle::OperandKind::none:
      return {};
    case pickle::OperandKind::number:
    case pickle::OperandKind::extension:
      return little_endian(random.number(), form.width);
    case pickle::OperandKind::two_names:
      return one_of(globals, random);
    case pickle::OperandKind::sized:
      return one_of(texts, random);
    default:
      return one_of(lines, random);
  }
}

Instruction make_instruction(Random& random) {
  const std::span<const std::uint8_t> known = known_opcodes();
  const std::uint8_t chosen = known[random.below(known.size())];
  return {chosen, make_operand(chosen, random)};
}

using Position = Program::difference_type;

Position position_in(const Program& program, Random& random) {
  return static_cast<Position>(random.below(program.size()));
}

void change_operand(Instruction& instruction, Random& random) {
  if (random.once_in(2)) {
    instruction.operand = make_operand(instruction.opcode, random);
  } else {
    mutate_bytes(instruction.operand, 4);
  }
}

// Returns up to 16 instructions from `at` on.
std::pair<Position, Position> some_from(const Program& program, Position at, Random& random) {
  const auto length = static_cast<Position>(1 + random.below(16));
  return {at, std::min(at + length, static_cast<Position>(program.size()))};
}

void copy_some(Program& program, Random& random) {
  const auto [first, last] = some_from(program, position_in(program, random), random);
  const Program copied(program.begin() + first, program.begin() + last);
  const Position at = position_in(program, random);
  const std::size_t times = random.once_in(4) ? 1 + random.below(20) : 1;
  for (std::size_t i = 0; i < times; ++i)
    program.insert(program.begin() + at, copied.begin(), copied.end());
}

void change(Program& program, Random& random) {
  if (program.empty()) return program.push_back(make_instruction(random));
  const Position at = position_in(program, random);
  Instruction& chosen = program[static_cast<std::size_t>(at)];
  switch (random.below(7)) {
    case 0:
      program.insert(program.begin() + at, make_instruction(random));
      return;
    case 1: {
      const auto [first, last] = some_from(program, at, random);
      program.erase(program.begin() + first, program.begin() + last);
      return;
    }
    case 2:
      program.erase(program.begin() + at);
      return;
    case 3:
      std::swap(chosen, program[random.below(program.size())]);
      return;
    case 4:
      chosen = make_instruction(random);
      return;
    case 5:
      return change_operand(chosen, random);
    default:
      return copy_some(program, random);
  }
}

}  // namespace

std::vector<std::byte> mutate_pickle(std::span<const std::byte> pickle, Random& random) {
  Program program = split(pickle);
  for (std::size_t changes = 1 + random.below(3); changes > 0; --changes) change(program, random);
  // Frames would need the new lengths.
  if (!random.once_in(8))
    std::erase_if(program, [](const Instruction& of) { return of.opcode == pickle::op_FRAME; });
  std::vector<std::byte> made = join(program);
  if (random.once_in(8)) mutate_bytes(made);
  return made;
}

}  // namespace weightmap::fuzz
