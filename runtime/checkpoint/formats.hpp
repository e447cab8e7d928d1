// The table of the formats that are opened, and files that are a checkpoint together: as one of
// them names them, which each format does in its own way.
#pragma once

#include <filesystem>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/sources.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/format/identify.hpp"
#include "runtime/formats/sets/shard_index.hpp"
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

struct FormatRow {
  format::Kind kind;  // of a file's content
  // Returns true if a zip archive has this format and not one of the rows below; nullptr: any has.
  bool (*is_archive)(const zip::Directory& directory) = nullptr;
  // Parses one file and proves everything but the mapping. `memory` must outlive what is returned.
  // Counts into `stats`. Throws std::bad_alloc. nullptr for a file that only names others.
  Result<format::Parsed> (*parse)(format::Input& file, const OpenOptions& options, OpenStats& stats,
                                  std::pmr::memory_resource& memory) = nullptr;
  // Compares the place of every storage with what stands before it in its file; nullptr for a
  // format that has nothing there.
  Result<void> (*verify_headers)(format::Input& file, const catalog::Catalog& catalog,
                                 const Limits& limits) = nullptr;
  // The files that are a checkpoint together with one of this format; nullptr for a format whose
  // files name no others.
  NameFiles name_files = nullptr;
  std::string_view sentence = {};  // what a file without `parse` is: "is an index of shards"
};

// True for the name of a file whose metadata is in front, if it is what it is called.
bool may_begin_with_metadata(const std::filesystem::path& name);

// The format of a file by its content. If it is none of ours, the error says what the file is
// instead. By its name only is guessed at which end to look first, for the sake of reads. Leaves in
// `input` what parse() would read again.
Result<const FormatRow*> format_of(format::Input& input, const std::filesystem::path& name,
                                   const Limits& limits, OpenStats& stats);

// Parses a file whose row format_of() gave. `row` is changed to another one if the file turns out
// to be of that format. Precondition: the row has a `parse`.
Result<format::Parsed> parse_file(const FormatRow*& row, format::Input& input,
                                  const OpenOptions& options, OpenStats& stats,
                                  std::pmr::memory_resource& memory);

// Parses the files of a checkpoint separately, several at a time, and merges their catalogs: all
// files of `sources` from number `first` on. With an index, which has as many files in
// the same order, the tensors are exactly those that it names, otherwise all. Errors name the file.
// Fails with corrupt if the index names a tensor that its file does not have, or if two files have
// one; with corrupt for a split whose files do not match its description; with unsupported for
// features of single files: compressed storages, reserved ones.
Result<format::Parsed> parse_shards(const Sources& sources, std::size_t first,
                                    const sets::ShardIndex* index, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap
