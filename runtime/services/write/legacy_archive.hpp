// Writes a legacy stream as an archive, torch.save's format since 1.6.
#pragma once

#include <filesystem>

#include "weightmap/checkpoint.hpp"
#include "weightmap/convert.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Writes the same object with the same pickle except the references to storages, which are numbered
// in the order of first reference. Fails with unsupported for an order, and for parts of storages.
Result<ConvertReport> write_legacy_as_archive(const Checkpoint& source,
                                              const std::filesystem::path& to,
                                              const ConvertOptions& options);

}  // namespace weightmap
