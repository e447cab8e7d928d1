// Which files an open comes to, and how each is opened: the file that was given, those of a folder,
// of a model in the hub cache, of an index.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/sources.hpp"
#include "runtime/format/format.hpp"
#include "runtime/sets/hub_cache.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// What an open was told: a file, an index of shards or a folder.
struct GivenPath {
  std::filesystem::path path;  // absolute
  std::string shown;           // as it was given, escaped, for errors
  std::string as_given;        // as it was given
};

GivenPath given(const std::filesystem::path& path);

// A file under the protection that the options ask for, which errors call `name`. All options here
// are complete.
Result<SourceFile> make_source(os::File file, std::string name, const OpenOptions& options);

// Opens a file and places it. Errors name it.
Result<void> add_source(Sources& sources, const GivenPath& from, const OpenOptions& options);

// The same; or if it is a folder, all files of the checkpoint in it; or if there is none, those of
// the model of this name, of which `hub` says what it stands for.
Result<void> add_given(Sources& sources, const GivenPath& from, const OpenOptions& options,
                       std::optional<sets::HubSnapshot>& hub);

// The files that the first of the sources, which is an index or like one, names. They lie beside
// it, or beside the link by which it was found. `kind`: what errors call it.
Result<void> add_named_files(Sources& sources, std::span<const std::string> files,
                             std::string_view kind, const OpenOptions& options);

// The names of all files of a split, by that of one of them and what it says of itself. Fails with
// corrupt if the name says something else, with invalid_argument if there is none.
Result<std::vector<std::string>> names_of_split(const std::filesystem::path& path,
                                                const format::Split& split);
// All of them, in their order; `part`, which is one of them, is opened again.
Result<Sources> open_split(const SourceFile& part, const format::Split& split,
                           const OpenOptions& options);

}  // namespace weightmap
