// Which files of a folder are its checkpoint.
#pragma once

#include <filesystem>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// Names in the folder: the index of the shards, the one file, or all shards of a set without an
// index, in their order. By names alone: the only `*.safetensors.index*.json`; without one
// model.safetensors, the only `*.safetensors`, or a complete `-00001-of-00003.safetensors` set;
// without any of these the same for .bin, of which a single file must be called pytorch_model.bin.
// Folders and names that begin with a dot do not count. Fails with invalid_argument, naming the
// candidates, where several would do, as an index and model.safetensors do; with not_found where a
// shard is missing; with not_a_checkpoint where there is nothing; with unsupported for what
// torch.distributed.checkpoint writes; with io if the folder cannot be read.
Result<std::vector<std::filesystem::path>> select_files(const std::filesystem::path& folder);

}  // namespace weightmap::sets
