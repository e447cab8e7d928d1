// Writes tensors of any checkpoints as torch archives of a dict: one, or a set with its index.
#pragma once

#include <vector>

#include "runtime/services/write/conversion_sources.hpp"
#include "runtime/services/write/conversion_target.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Borrows the tensors' sources. `nested`: the one checkpoint of all of them, whose values() become
// the content of one file in place of a dict of its tensors; or nullptr.
Result<ConvertReport> write_torch_dict(const std::vector<SourceTensor>& tensors,
                                       const ConversionTarget& target,
                                       const ConvertOptions& options,
                                       const Checkpoint* nested = nullptr);

}  // namespace weightmap
