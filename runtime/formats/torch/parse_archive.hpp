// Parses torch.save()'s format since 1.6: a zip archive with a pickle and a record per storage.
#pragma once

#include "runtime/formats/format/format.hpp"

namespace weightmap::torch {

// See FormatRow::parse.
Result<format::Parsed> parse_archive(format::Input& input, const OpenOptions& options,
                                     OpenStats& stats, std::pmr::memory_resource& memory);

// Reads the central directory again and compares each storage's offset with its local header.
Result<void> verify_archive_headers(format::Input& input, const catalog::Catalog& catalog,
                                    const Limits& limits);

}  // namespace weightmap::torch
