// Names of files that occur in other files, and of the files of a numbered set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::sets {

// True if every reader, on any system, resolves this name to a file beside the naming one or below.
bool stays_below(std::string_view name) noexcept;

// "model-00002-of-00003.safetensors": shard 2 of 3 of "model".
struct ShardName {
  std::string_view stem;
  std::uint32_t number;  // from 1 on in valid names
  std::uint32_t count;
};

// Returns nullopt for another form. Precondition: it ends with `extension`, ".safetensors".
std::optional<ShardName> shard_name(std::string_view name, std::string_view extension);

// The inverse of shard_name().
std::string to_string(const ShardName& shard, std::string_view extension);

// Returns what an error about the file of a cut one adds, by its name "model.gguf.part1of2",
// "model.gguf.part-a" or "model.gguf-split-a": how its parts are joined; empty for other names.
// `name` is printable.
std::string hint_about_cut(std::string_view name);

}  // namespace weightmap::sets
