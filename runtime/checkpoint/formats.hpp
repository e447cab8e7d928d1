// The table of the formats that are opened.
#pragma once

#include <filesystem>

#include "runtime/format/format.hpp"

namespace weightmap {

// The format of a file by its content. If it is none of ours, the error says what the file is
// instead. By its name only is guessed at which end to look first, for the sake of reads.
Result<const format::Format*> format_of(format::Input& input, const std::filesystem::path& name);

// Parses a file of this format, which format_of() told.
Result<format::Parsed> parse_file(const format::Format& format, format::Input& input,
                                  const OpenOptions& options, OpenStats& stats,
                                  std::pmr::memory_resource& memory);

// Of a folder of torch.distributed.checkpoint, which its metadata begins. It has no parse() either:
// which files there are is known once the metadata is read.
bool is_distributed(const format::Format& format) noexcept;

// Of an index of shards, which is no checkpoint itself and is not parsed as one.
inline bool is_index(const format::Format& format) noexcept {
  return format.parse == nullptr && !is_distributed(format);
}

}  // namespace weightmap
