// Archives of torch.export.save() and package_pt2() (.pt2): a zip archive with a record for each
// storage and JSON that says which tensors lie in them (torch/export/pt2_archive).
#pragma once

#include "runtime/format/format.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/zip/directory.hpp"

namespace weightmap::torch {

// As FormatRow::parse, of an archive whose directory and small records have been read.
Result<format::Parsed> parse_exported(format::Input& input, const zip::Directory& directory,
                                      ArchiveRecords records, const OpenOptions& options,
                                      OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
