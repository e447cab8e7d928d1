#include "runtime/sets/select_files.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/decimal.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/sets/shard_name.hpp"

namespace weightmap::sets {
namespace {

using std::filesystem::path;
using Names = std::vector<std::string>;

// A kind of file for checkpoints.
struct Family {
  std::string_view extension;
  std::string_view usual_name;  // of a single file; empty: none
  bool may_have_any_name;       // applies to a single file
};
constexpr Family families[] = {
    {".safetensors", "model.safetensors", true},
    {".bin", "pytorch_model.bin", false},
    {".gguf", {}, true},
};

Result<Names> names_in(const path& folder) {
  std::error_code failed;
  Names names;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (std::error_code unknown; !entry->is_directory(unknown))
      names.push_back(entry->path().filename().native());
  if (failed) {
    Error error{ErrorCode::io, "cannot read the folder: " + failed.message(), Error::no_offset, {}};
    error.os_error = failed.value();
    return tl::unexpected<Error>(std::move(error));
  }
  return names;
}

std::string list(const Names& names) {
  constexpr std::size_t most = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + bytes::quote(names[i], 80);
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

tl::unexpected<Error> ambiguous(const Names& candidates) {
  return failure(
      ErrorCode::invalid_argument,
      "is a folder of several checkpoints: " + list(candidates) + "; open one of them by its name");
}

// Matches "shard-00003-model-00001-of-00001.safetensors", the third rank's parts of tensors.
// Missing parts are detected when tensors are assembled.
bool is_of_a_rank(std::string_view name) {
  constexpr std::string_view front = "shard-";
  constexpr std::size_t rank_digits = 5;
  return name.starts_with(front) && name.size() > front.size() + rank_digits &&
         name.find_first_not_of("0123456789", front.size()) == front.size() + rank_digits;
}

// Returns the shards, which must be a complete set.
Result<Names> whole_set(const Names& files, std::string_view extension) {
  if (std::ranges::all_of(files, is_of_a_rank)) return files;
  const std::optional<ShardName> first = shard_name(files.front(), extension);
  if (!first) return ambiguous(files);
  std::vector<bool> is_there(first->count);
  for (const std::string& file : files) {
    const std::optional<ShardName> shard = shard_name(file, extension);
    if (!shard || shard->stem != first->stem || shard->count != first->count ||
        shard->number == 0 || shard->number > first->count)
      return ambiguous(files);
    is_there[shard->number - 1] = true;
  }
  const auto missing = std::ranges::find(is_there, false);
  if (missing == is_there.end()) return files;
  const std::string number = std::to_string(missing - is_there.begin() + 1);
  return failure(ErrorCode::not_found, "is a folder of " + bytes::counted(files.size(), "shard") +
                                           " of " + std::to_string(first->count) +
                                           " and no index: shard " + number +
                                           " is missing, as in " + list({files.front()}));
}

// Returns nothing if no file is of this family.
Result<Names> select(const Names& names, const Family& family) {
  Names files, indexes;
  const std::string index = std::string(family.extension) + ".index";
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;  // other systems create "._model.safetensors"
    if (name.ends_with(family.extension)) files.push_back(name);
    if (name.ends_with(".json") && name.find(index) != std::string::npos) indexes.push_back(name);
  }
  const bool has_usual = std::ranges::count(files, family.usual_name) != 0;
  if (!indexes.empty()) {
    if (has_usual) indexes.emplace_back(family.usual_name);
    if (indexes.size() > 1) return ambiguous(indexes);
    return indexes;
  }
  if (has_usual) return Names{std::string(family.usual_name)};
  std::erase_if(files, [&family](const std::string& name) {
    return !family.may_have_any_name && !shard_name(name, family.extension);
  });
  if (files.empty()) return files;
  if (files.size() == 1 && family.may_have_any_name) {
    const std::optional<ShardName> shard = shard_name(files.front(), family.extension);
    if (!shard || shard->count == 1) return files;
  }
  return whole_set(files, family.extension);
}

std::string rank_metadata(std::size_t rank) { return "__" + std::to_string(rank) + ".metadata"; }

// Returns the metadata files of a torch.distributed.checkpoint folder; empty for other folders.
Result<Names> select_metadata(const Names& names) {
  if (std::ranges::binary_search(names, ".metadata")) return Names{".metadata"};
  Names ranks;
  while (std::ranges::binary_search(names, rank_metadata(ranks.size())))
    ranks.push_back(rank_metadata(ranks.size()));
  if (static_cast<std::size_t>(std::ranges::count_if(names, is_rank_metadata)) > ranks.size())
    return failure(ErrorCode::not_found, "is a folder of torch.distributed.checkpoint in which " +
                                             bytes::quote(rank_metadata(ranks.size())) +
                                             " is missing");
  const bool has_data =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".distcp"); });
  if (ranks.empty() && has_data)
    return failure(
        ErrorCode::not_found,
        "is a folder of torch.distributed.checkpoint without .metadata, which is written "
        "last: the save did not end");
  return ranks;
}

}  // namespace

bool is_rank_metadata(std::string_view name) noexcept {
  constexpr std::string_view end = ".metadata";
  if (!name.starts_with("__") || !name.ends_with(end)) return false;
  const std::string_view rank = name.substr(2, name.size() - std::min(name.size(), 2 + end.size()));
  return bytes::decimal(rank) != bytes::no_number;
}

bool is_distributed_metadata(std::string_view name) noexcept {
  return name == ".metadata" || is_rank_metadata(name);
}

Result<Names> select_names(Names names) {
  std::ranges::sort(names);
  TRY_ASSIGN(Names metadata, select_metadata(names));
  if (!metadata.empty()) return metadata;
  for (const Family& family : families) {
    TRY_ASSIGN(Names chosen, select(names, family));
    if (!chosen.empty()) return chosen;
  }
  return failure(ErrorCode::not_a_checkpoint,
                 "is a folder in which there is no checkpoint: expected an index of shards, "
                 "*.safetensors, pytorch_model.bin, or *.gguf");
}

Result<std::vector<path>> select_files(const path& folder) {
  TRY_ASSIGN(Names names, names_in(folder));
  TRY_ASSIGN(const Names chosen, select_names(std::move(names)));
  return std::vector<path>(chosen.begin(), chosen.end());
}

std::optional<std::string> file_of_another_rank(const path& file) {
  const std::string own = file.filename().native();
  if (!is_of_a_rank(own)) return std::nullopt;
  const path folder = file.parent_path();
  Result<Names> names = names_in(folder.empty() ? "." : folder);
  if (!names) return std::nullopt;
  const std::string_view rank = std::string_view(own).substr(0, own.find('-', 6));
  std::ranges::sort(*names);
  const auto other = std::ranges::find_if(*names, [rank](const std::string& name) {
    return is_of_a_rank(name) && !name.starts_with(rank) && name.ends_with(".safetensors");
  });
  return other == names->end() ? std::nullopt : std::optional(*other);
}

}  // namespace weightmap::sets
