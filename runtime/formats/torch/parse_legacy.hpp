// Parses the format of torch.save() before torch 1.6, and of later versions with
// _use_new_zipfile_serialization=False. It is five pickles (a magic number, 1001, facts about the
// machine, the object, the keys of the storages), then for each storage its element count in eight
// bytes and the elements, without padding. Bytes after that are ignored.
#pragma once

#include "runtime/formats/format/format.hpp"

namespace weightmap::torch {

// See FormatRow::parse.
Result<format::Parsed> parse_legacy(format::Input& input, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

// Reads the stream again and compares the place of each storage.
Result<void> verify_legacy(format::Input& input, const catalog::Catalog& catalog,
                           const Limits& limits);

}  // namespace weightmap::torch
