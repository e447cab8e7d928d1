// Files that are a checkpoint together, as one of them names them: how each format does that.
#pragma once

#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/sources.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The files that an open has read when it needs the names.
struct FirstFiles {
  const Sources& sources;
  std::span<format::Input> inputs;  // the first source, or those of all ranks' metadata
  const format::Parsed* content;    // nullptr for a format without a parse
  const OpenOptions& options;
  OpenStats& stats;
  std::pmr::memory_resource& memory;
};

struct NamedFiles {
  std::vector<std::string> files;  // beside the first one, or below
  std::string why;                 // what an error about a missing one ends with
  // The first file is one of `files`. Otherwise it stays in front of them.
  bool includes_first = false;
  // Parses all files, which are the sources by now.
  std::function<Result<format::Parsed>(const Sources& sources, const OpenOptions& options,
                                       OpenStats& stats, std::pmr::memory_resource& memory)>
      parse;
};

// nullopt: the file is a checkpoint by itself. Errors name the file, or are about the first one.
using NameFiles = Result<std::optional<NamedFiles>> (*)(const FirstFiles& first);

// An index of shards.
Result<std::optional<NamedFiles>> name_shards(const FirstFiles& first);
// The metadata of torch.distributed.checkpoint.
Result<std::optional<NamedFiles>> name_data_files(const FirstFiles& first);
// A GGUF file that may be part of a split. Fails with corrupt if the file's name contradicts what
// the file says, with invalid_argument if the file has no name.
Result<std::optional<NamedFiles>> name_split(const FirstFiles& first);
// A safetensors file, which never names others. Fails with invalid_argument if it has the parts of
// one rank, as it says or as the files of other ranks beside it show.
Result<std::optional<NamedFiles>> name_ranks(const FirstFiles& first);

}  // namespace weightmap
