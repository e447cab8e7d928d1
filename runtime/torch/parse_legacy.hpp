// The format of torch.save() before torch 1.6, and of later ones with
// _use_new_zipfile_serialization=False: five pickles (a magic number, 1001, facts of the machine,
// the object, the keys of the storages), then of each storage the count of its elements in eight
// bytes and the elements, without padding. More may follow; it is not looked at.
#pragma once

#include "runtime/format/format.hpp"

namespace weightmap::torch {

// See FormatRow::parse.
Result<format::Parsed> parse_legacy(format::Input& input, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

// Reads the stream afresh and compares where each storage is.
Result<void> verify_legacy(format::Input& input, const catalog::Catalog& catalog,
                           const Limits& limits);

}  // namespace weightmap::torch
