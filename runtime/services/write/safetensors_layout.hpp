// The places of tensors in a safetensors file, and its header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Fails for a SafetensorsTensor that the format cannot hold.
Result<void> check_tensor(const SafetensorsTensor& tensor);

struct SafetensorsLayout {
  std::string header;                // with its length before it and the padding blanks
  std::vector<std::size_t> tensors;  // in file order
  std::uint64_t bytes = 0;           // size of the file
};

// Lays out a file with the `members` of `tensors`. Fails with limit_exceeded for a header that no
// reader accepts. Precondition: check_tensor() of each.
Result<SafetensorsLayout> lay_out_safetensors(std::span<const SafetensorsTensor> tensors,
                                              std::vector<std::size_t> members,
                                              const SafetensorsMetadata& metadata);

}  // namespace weightmap
