// libFuzzer's own mutation, for bytes without a grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace weightmap::fuzz {

// The result may be longer by at most `growth` bytes. `Bytes` contains bytes or characters.
template <class Bytes>
void mutate_bytes(Bytes& bytes, std::size_t growth = 16) {
  const std::size_t size = bytes.size();
  bytes.resize(size + growth);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
}

}  // namespace weightmap::fuzz
