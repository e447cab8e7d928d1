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

struct Selection {
  std::vector<std::string> files;       // which are opened, in their order
  std::vector<std::string> not_opened;  // indexes and single files that are checkpoints, too
};

// Returns names in the folder: the metadata of torch.distributed.checkpoint, of all ranks if each
// has its own; else a single file, the index of the shards, or all shards of a set without an
// index. Decides by names alone. Of .safetensors model.safetensors, as in transformers, else the
// only index, the only file, or a complete `-00001-of-00003.safetensors` set; without any of these
// the same for .bin and pytorch_model.bin, but for a single file of another name; without those the
// only `*.gguf`, or a complete set of such; without those the only .bin of any name that is no
// trainer's state.
//
// With `variant`, "fp16", the same of the names that have it: model.fp16.safetensors,
// x.fp16-00001-of-00002.safetensors, x-00001-of-00002.fp16.safetensors,
// x.safetensors.index.fp16.json and x.safetensors.fp16.index.json. Without, those that have none
// come first.
//
// Ignores folders and names that begin with a dot. Fails with invalid_argument, naming all
// candidates, if there are several; with not_found if a shard, metadata or the variant is missing;
// with not_a_checkpoint if there is nothing, naming folders below which have one; with io if the
// folder cannot be read.
Result<Selection> select_files(const std::filesystem::path& folder, std::string_view variant = {});
// Does the same for the names of a folder's files.
Result<Selection> select_names(std::vector<std::string> names, std::string_view variant = {});

// "shard-00002-model-00001-of-00001.safetensors" for
// "shard-00001-model-00001-of-00001.safetensors": the first file beside it that is another rank's,
// as torch's HuggingFaceStorageWriter names them. nullopt if there is none, if the name has another
// form, or if the folder cannot be read.
std::optional<std::string> file_of_another_rank(const std::filesystem::path& file);

// The mark of a folder whose files are being replaced by those of another version of the set: while
// it is there, they are of two versions.
inline constexpr const char* update_mark = ".weightmap-update";

// Fails with corrupt, about no file, if the folder has the mark.
Result<void> check_no_update(const std::filesystem::path& folder);

}  // namespace weightmap::sets
