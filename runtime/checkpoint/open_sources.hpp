// Which files an open comes to, and how each is opened: the file that was given, those of a folder,
// of a model in the hub cache, of an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/sources.hpp"
#include "runtime/formats/sets/hub.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// An argument of an open: a file, an index of shards or a folder.
struct GivenPath {
  std::filesystem::path path;  // absolute
  std::string shown;           // as it was given, escaped, for errors
  std::string as_given;        // as it was given
};

GivenPath given(const std::filesystem::path& path);

// The memory behind a checkpoint's views.
enum class ViewMemory : std::uint8_t {
  mapped,
  given,   // the memory of Checkpoint::open_memory()
  none,    // only metadata is read: their addresses are reserved, and cannot be read
  unused,  // likewise, and nobody will ask for any, so that storages may be compressed
};

// The files that an open begins with, under the protection that its options ask for.
struct GivenFiles {
  std::vector<GivenPath> paths = {};       // to open them again; none: a descriptor, or memory
  std::shared_ptr<const void> owner = {};  // of the memory
  Sources sources = {};
  std::optional<sets::HubSnapshot> hub = {};  // that the name which was given stands for
  // How many of the first files are read before the others, which they may name; 0: the sources are
  // all files, each of which is a checkpoint of its own.
  std::size_t leading = 0;
  ViewMemory view_memory = ViewMemory::mapped;
  std::vector<std::string> not_opened = {};  // other checkpoints of the folder that was given

  // For errors and messages about the whole.
  const std::string& shown_name() const noexcept {
    return paths.empty() ? sources.front().shown_name : paths.front().shown;
  }
};

// Opens the files and reads nothing. All options here are complete.
Result<GivenFiles> open_given(std::vector<GivenPath> paths, const OpenOptions& options);
Result<GivenFiles> open_given(int descriptor, const OpenOptions& options);
// Fails with invalid_argument for options that need a mapped file.
Result<GivenFiles> open_given(std::span<const std::byte> memory, std::shared_ptr<const void> owner,
                              const OpenOptions& options);
Result<GivenFiles> open_given(std::shared_ptr<ArrivingFile> remote, ViewMemory view_memory);

// Opens and places files in the folder of `first`, or of the link by which it was found, or below.
// Those beside a remote file are its siblings.
// Errors name the file and end with `why`.
Result<void> add_beside(Sources& sources, const SourceFile& first,
                        std::span<const std::string> names, const std::string& why,
                        const OpenOptions& options);

}  // namespace weightmap
