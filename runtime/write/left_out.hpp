// What a checkpoint has besides the tensors that are written of it.
#pragma once

#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Names as ConvertReport::left_out has them. Of a set each file is opened by itself. `metadata` is
// what the new files have.
Result<std::vector<std::string>> left_out(const Checkpoint& checkpoint, const OpenOptions& options,
                                          const SafetensorsMetadata& metadata);

}  // namespace weightmap
