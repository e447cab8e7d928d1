// The table of the formats that are opened.
#pragma once

#include <filesystem>
#include <memory_resource>
#include <optional>
#include <string_view>

#include "runtime/checkpoint/named_files.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/format/identify.hpp"

namespace weightmap {

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

}  // namespace weightmap
