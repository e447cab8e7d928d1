// Which files of a folder are its checkpoint.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// What torch.distributed.checkpoint calls its metadata: ".metadata", or "__3.metadata" of one rank.
bool is_distributed_metadata(std::string_view name) noexcept;
bool is_rank_metadata(std::string_view name) noexcept;

// Names in the folder: the metadata of torch.distributed.checkpoint, of all ranks if each has its
// own; else the index of the shards, the one file, or all shards of a set without an
// index, in their order. By names alone: the only `*.safetensors.index*.json`; without one
// model.safetensors, the only `*.safetensors`, or a complete `-00001-of-00003.safetensors` set;
// without any of these the same for .bin, of which a single file must be called pytorch_model.bin;
// without those the only `*.gguf`, or a complete `-00001-of-00003.gguf` set.
// Folders and names that begin with a dot do not count. Fails with invalid_argument, naming the
// candidates, where several would do, as an index and model.safetensors do; with not_found where a
// shard or metadata is missing; with not_a_checkpoint where there is nothing; with io if the folder
// cannot be read.
Result<std::vector<std::filesystem::path>> select_files(const std::filesystem::path& folder);

}  // namespace weightmap::sets
