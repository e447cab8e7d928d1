// Lists the parts of a checkpoint that a conversion of its tensors omits.
#pragma once

#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Returns names as in ConvertReport::left_out. Opens each file of a set by itself. `metadata` is
// the metadata of the new files. With `has_values` these have Checkpoint::values().
Result<std::vector<std::string>> left_out(const Checkpoint& checkpoint, const OpenOptions& options,
                                          const SafetensorsMetadata& metadata,
                                          bool has_values = false);

}  // namespace weightmap
