// Which files of a folder are its checkpoint.
#pragma once

#include <filesystem>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// Names in the folder: the index of the shards, the one file, or all shards of a set without an
// index, in their order. By names alone, in this order: `*.safetensors.index*.json`,
// model.safetensors, the only
// `*.safetensors`, a complete `-00001-of-00003.safetensors` set; the same for .bin, of which a
// single file must be called pytorch_model.bin. Fails with invalid_argument, naming the candidates,
// where several would do; with not_found where a shard is missing; with not_a_checkpoint where
// there is nothing; with io if the folder cannot be read.
Result<std::vector<std::filesystem::path>> select_files(const std::filesystem::path& folder);

}  // namespace weightmap::sets
