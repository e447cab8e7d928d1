// Parses archives of torch.export.save() and package_pt2() (.pt2): a zip archive with a record for
// each storage and JSON that states which tensors lie in them (torch/export/pt2_archive).
#pragma once

#include "runtime/base/zip/directory.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/torch/archive_records.hpp"

namespace weightmap::torch {

// Does what format::Format::parse does, after the directory and small records were read.
Result<format::Parsed> parse_exported(format::Input& input, const zip::Directory& directory,
                                      ArchiveRecords records, const OpenOptions& options,
                                      OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
