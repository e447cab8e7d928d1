// The input of the target for TorchScript archives: the two pickles, the code, and the lengths of
// the storages. Records and offsets are laid out around it.
//
//   u8 count | u16 size[count]           of data/0, data/1, ...
//   u8 count | u16 size[count]           of constants/0, ...
//   u32 length | data.pkl
//   u32 length | constants.pkl
//   { u8 length | name | u32 length | text }   of code/<name>.py, up to the end
//
// Little-endian; missing fields at the end are zero or empty. seeds.py writes this format, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightmap::fuzz {

struct ScriptInput {
  struct Code {
    std::string name;
    std::string text;
  };
  std::vector<std::uint16_t> data_sizes;
  std::vector<std::uint16_t> constant_sizes;
  std::string data;
  std::string constants;
  std::vector<Code> code;
};

ScriptInput decode_script(std::span<const std::byte> bytes);
std::vector<std::byte> encode_script(const ScriptInput& input);
std::vector<std::byte> lay_out_script(const ScriptInput& input);

}  // namespace weightmap::fuzz
