// Selects the files of a folder that are its checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// Match torch.distributed.checkpoint's metadata: ".metadata", or "__3.metadata" of one rank.
bool is_distributed_metadata(std::string_view name) noexcept;
bool is_rank_metadata(std::string_view name) noexcept;

// Returns names in the folder: the metadata of torch.distributed.checkpoint, of all ranks if each
// has its own; else the index of the shards, the single file, or all shards of a set without an
// index, in order. Decides by names alone: the only `*.safetensors.index*.json`; without one
// model.safetensors, the only `*.safetensors`, or a complete `-00001-of-00003.safetensors` set;
// without any of these the same for .bin, where a single file must be named pytorch_model.bin;
// without those the only `*.gguf`, or a complete `-00001-of-00003.gguf` set. Ignores folders and
// names that begin with a dot. Fails with invalid_argument, naming the candidates, if there are
// several, such as an index and model.safetensors; with not_found if a shard or metadata is
// missing; with not_a_checkpoint if there is nothing; with io if the folder cannot be read.
Result<std::vector<std::filesystem::path>> select_files(const std::filesystem::path& folder);
// Does the same for the names of a folder's files.
Result<std::vector<std::string>> select_names(std::vector<std::string> names);

// "shard-00002-model-00001-of-00001.safetensors" for
// "shard-00001-model-00001-of-00001.safetensors": the first file beside it that is another rank's,
// as torch's HuggingFaceStorageWriter names them. nullopt if there is none, if the name has another
// form, or if the folder cannot be read.
std::optional<std::string> file_of_another_rank(const std::filesystem::path& file);

}  // namespace weightmap::sets
