// Where the tensors of a safetensors file lie, and the header that says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Fails where SafetensorsTensor is one that the format cannot have, whatever else is written.
Result<void> check_tensor(const SafetensorsTensor& tensor);

struct SafetensorsLayout {
  std::string header;                // with its length before it, and the blanks behind
  std::vector<std::size_t> tensors;  // as they follow one another
  std::uint64_t bytes = 0;           // of the file
};

// Of the file that has those `members` of `tensors`. Fails with limit_exceeded for a header that no
// reader takes. Precondition: check_tensor() of each.
Result<SafetensorsLayout> lay_out_safetensors(std::span<const SafetensorsTensor> tensors,
                                              std::vector<std::size_t> members,
                                              const SafetensorsMetadata& metadata);

}  // namespace weightmap
