// Rewrites a torch archive or a legacy stream with all its contents.
#pragma once

#include <filesystem>

#include "runtime/services/write/conversion_target.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// `opened` is the checkpoint of `from`, one file.
Result<ConvertReport> relayout(Checkpoint opened, const std::filesystem::path& from,
                               const ConversionTarget& target, const ConvertOptions& options);

}  // namespace weightmap
