#include "runtime/formats/sets/select_files.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap::sets {
namespace {

using std::filesystem::path;
using Names = std::vector<std::string>;

// A kind of file for checkpoints.
struct Family {
  std::string_view extension;
  std::string_view usual_stem;  // of a single file; empty: none
  bool may_have_any_name;       // applies to a single file
};
constexpr Family families[] = {
    {".safetensors", "model", true},
    {".bin", "pytorch_model", false},
    {".gguf", {}, true},
    {".bin", {}, true},
};

// Of formats that are one file, which comes after all families.
constexpr std::string_view single_files[] = {".pt",  ".pth", ".ckpt",    ".pt2",
                                             ".th",  ".pkl", ".pickle",  ".joblib",
                                             ".npz", ".npy", ".pdparams"};
// Of files that are refused by what they are, with what to do.
constexpr std::string_view foreign_files[] = {".nemo",    ".mar",   ".llamafile", ".onnx",   ".h5",
                                              ".hdf5",    ".keras", ".tflite",    ".pte",    ".ptd",
                                              ".msgpack", ".ubj",   ".skops",     ".mlmodel"};

// Beside weights of Trainer and accelerate, and of Core ML.
constexpr std::string_view no_weights[] = {"training_args.bin", "optimizer.bin", "scheduler.bin",
                                           "coremldata.bin",    "optimizer.pt",  "scheduler.pt",
                                           "scaler.pt"};

enum class Entries { files, folders };

Result<Names> names_in(const path& folder, Entries wanted) {
  std::error_code failed;
  Names names;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (std::error_code unknown; entry->is_directory(unknown) == (wanted == Entries::folders))
      names.push_back(entry->path().filename().native());
  if (failed) {
    Error error{ErrorCode::io, "cannot read the folder: " + failed.message(), Error::no_offset, {}};
    error.os_error = failed.value();
    return tl::unexpected<Error>(std::move(error));
  }
  return names;
}

std::string list(const Names& names) {
  constexpr std::size_t most = 24;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + bytes::quote(names[i], 80);
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

// What a name says besides its extension: "x.fp16-00001-of-00002.safetensors" and
// "x-00001-of-00002.fp16.safetensors" are shard 1 of 2 of variant "fp16" of "x".
struct WeightName {
  std::string_view stem;
  std::string_view variant = {};
  std::optional<ShardName> shard = {};
};

// Takes ".fp16" off the end. "v1.5" has no variant, which begins with a letter.
std::string_view take_variant(std::string_view& stem) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::size_t dot = stem.rfind('.');
  if (dot == stem.npos || dot == 0 || stem.find_first_of(letters, dot) != dot + 1) return {};
  const std::string_view variant = stem.substr(dot + 1);
  stem = stem.substr(0, dot);
  return variant;
}

WeightName weight_name(std::string_view name, std::string_view extension) {
  WeightName read{name.substr(0, name.size() - extension.size())};
  read.shard = shard_name(name, extension);
  if (!read.shard) {
    std::string_view stem = read.stem;
    const std::string_view variant = take_variant(stem);
    read.shard = shard_name(stem, "");
    if (read.shard) read.variant = variant;
  }
  if (read.shard) read.stem = read.shard->stem;
  if (read.variant.empty()) read.variant = take_variant(read.stem);
  return read;
}

// Of x.safetensors.index.json, x.safetensors.index.fp16.json, x.safetensors.fp16.index.json and
// x.fp16.safetensors.index.json; nullopt for what is no index.
std::optional<std::string_view> index_variant(std::string_view name, std::string_view extension) {
  constexpr std::string_view index = ".index", end = ".json";
  if (!name.ends_with(end)) return std::nullopt;
  const std::size_t at = name.find(extension);
  const std::size_t index_at = at == name.npos ? at : name.find(index, at + extension.size());
  if (index_at == name.npos) return std::nullopt;
  const std::size_t behind = at + extension.size();
  const std::string_view between = name.substr(behind, index_at - behind);
  if (!between.empty() && between[0] != '.') return std::nullopt;
  std::string_view last = name.substr(index_at + index.size());
  last.remove_suffix(std::min(last.size(), end.size()));
  std::string_view stem = name.substr(0, at);
  if (!between.empty()) return between.substr(1);
  return last.empty() ? take_variant(stem) : last.substr(1);
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
  const WeightName first = weight_name(files.front(), extension);
  if (!first.shard) return ambiguous(files);
  std::vector<bool> is_there(first.shard->count);
  for (const std::string& file : files) {
    const WeightName name = weight_name(file, extension);
    if (!name.shard || name.stem != first.stem || name.variant != first.variant ||
        name.shard->count != first.shard->count || name.shard->number == 0 ||
        name.shard->number > first.shard->count)
      return ambiguous(files);
    is_there[name.shard->number - 1] = true;
  }
  const auto missing = std::ranges::find(is_there, false);
  if (missing == is_there.end()) return files;
  const std::string number = std::to_string(missing - is_there.begin() + 1);
  return failure(ErrorCode::not_found, "is a folder of " + bytes::counted(files.size(), "shard") +
                                           " of " + std::to_string(first.shard->count) +
                                           " and no index: shard " + number +
                                           " is missing, as in " + list({files.front()}));
}

// Selects among the names of one family.
class FamilySelection {
 public:
  FamilySelection(const Names& names, const Family& family, std::string_view variant)
      : family_(family), variant_(variant) {
    for (const std::string& name : names) {
      if (name.starts_with('.')) continue;  // other systems create "._model.safetensors"
      if (name.ends_with(family.extension) && !std::ranges::count(no_weights, name) &&
          (variant.empty() || weight_name(name, family.extension).variant == variant))
        files_.push_back(name);
      const auto index = index_variant(name, family.extension);
      if (index && (variant.empty() || *index == variant)) indexes_.push_back(name);
    }
  }

  // No file: none is of this family.
  Result<Selection> run() && {
    const std::string usual = usual_name();
    if (std::ranges::count(files_, usual) != 0) {
      add_variants(family_.usual_stem, indexes_);
      return Selection{{usual}, std::move(indexes_)};
    }
    if (!indexes_.empty()) {
      Names others = leave_plain(indexes_, [](const Names& names, std::size_t i, auto extension) {
        return index_variant(names[i], extension)->empty();
      });
      if (indexes_.size() > 1) return ambiguous(indexes_);
      const std::string_view index = indexes_[0];
      if (index_variant(index, family_.extension)->empty())
        add_variants(index.substr(0, index.find(family_.extension)), others);
      return Selection{std::move(indexes_), std::move(others)};
    }
    return select_file();
  }

 private:
  std::string usual_name() const {
    if (family_.usual_stem.empty()) return {};
    const std::string variant = variant_.empty() ? "" : "." + std::string(variant_);
    return std::string(family_.usual_stem) + variant + std::string(family_.extension);
  }

  // Adds the variants of a stem, which were not asked for; of one in shards its index, else the
  // first shard.
  void add_variants(std::string_view stem, Names& others) const {
    for (const std::string& file : files_) {
      const WeightName name = weight_name(file, family_.extension);
      if (!variant_.empty() || name.variant.empty() || name.stem != stem) continue;
      const bool has_index = std::ranges::any_of(others, [&](const std::string& other) {
        return index_variant(other, family_.extension) == name.variant;
      });
      if (!name.shard || (name.shard->number == 1 && !has_index)) others.push_back(file);
    }
  }

  // Leaves the names that have no variant, if there are any, and returns the others.
  template <class IsPlain>
  Names leave_plain(Names& names, IsPlain is_plain) const {
    Names plain, others;
    for (std::size_t i = 0; i < names.size(); ++i)
      (is_plain(names, i, family_.extension) ? plain : others).push_back(names[i]);
    if (plain.empty()) return {};
    names = std::move(plain);
    return others;
  }

  // True unless a file is a variant of another one, or of the other shards.
  static bool is_no_variant(const Names& names, std::size_t i, std::string_view extension) {
    const WeightName name = weight_name(names[i], extension);
    if (name.variant.empty()) return true;
    return std::ranges::none_of(names, [&](const std::string& other) {
      const WeightName plain = weight_name(other, extension);
      return plain.variant.empty() && plain.stem == name.stem;
    });
  }

  Result<Selection> select_file() {
    std::erase_if(files_, [this](const std::string& name) {
      return !family_.may_have_any_name && !weight_name(name, family_.extension).shard;
    });
    Names others = leave_plain(files_, is_no_variant);
    if (files_.empty()) return Selection{};
    const std::optional<ShardName> shard = weight_name(files_.front(), family_.extension).shard;
    if (files_.size() > 1 || !family_.may_have_any_name || (shard && shard->count != 1)) {
      TRY_ASSIGN(files_, whole_set(files_, family_.extension));
    }
    return Selection{std::move(files_), std::move(others)};
  }

  const Family& family_;
  std::string_view variant_;
  Names files_, indexes_;
};

bool has_weights(std::string_view name) {
  return !name.starts_with('.') && !name.starts_with("rng_state") &&
         !std::ranges::count(no_weights, name);
}

Names with_endings(const Names& names, std::span<const std::string_view> endings) {
  Names found;
  std::ranges::copy_if(names, std::back_inserter(found), [&](const std::string& name) {
    return has_weights(name) &&
           std::ranges::any_of(endings, [&](auto ending) { return name.ends_with(ending); });
  });
  return found;
}

// The only file of a format that is one file, else one whose refusal says what to do. No file:
// there is neither.
Result<Selection> select_single_file(const Names& names) {
  Names files = with_endings(names, single_files);
  if (files.size() > 1) return ambiguous(files);
  if (files.empty()) files = with_endings(names, foreign_files);
  if (files.size() > 1) files.resize(1);
  return Selection{std::move(files), {}};
}

// Adds the names of other checkpoints to an error about several.
tl::unexpected<Error> with_others(Error error, const Names& names, const Family& family) {
  std::vector<std::string_view> endings = {".safetensors", ".bin", ".gguf"};
  std::erase(endings, family.extension);
  endings.insert(endings.end(), std::begin(single_files), std::end(single_files));
  const Names others = with_endings(names, endings);
  if (error.code == ErrorCode::invalid_argument && !others.empty())
    error.message += others.size() == 1 ? "; beside them is " + list(others)
                                        : "; beside them are " + list(others);
  return tl::unexpected<Error>(std::move(error));
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

// A folder of another program, by the name of a file in it: what it is, and what to do. Empty for
// other folders.
std::string_view name_foreign(const Names& names) {
  const auto has = [&](std::string_view name) { return std::ranges::count(names, name) != 0; };
  const auto has_ending = [&](std::string_view ending) {
    return std::ranges::any_of(names, [&](const auto& name) { return name.ends_with(ending); });
  };
  if (has("saved_model.pb"))
    return "is a SavedModel of TensorFlow; load it with tensorflow, and save its variables as "
           "safetensors";
  if (has_ending(".index") && std::ranges::any_of(names, [](const std::string& name) {
        return name.find(".data-00000-of-") != name.npos;
      }))
    return "is a folder with a checkpoint of TensorFlow; load it with tf.train.load_checkpoint, "
           "and "
           "save its variables as safetensors";
  if (has("coremldata.bin") || names == Names{"Manifest.json"})
    return "is a model of Core ML (.mlpackage, .mlmodelc); load it with coremltools, or take the "
           "model that it was made of";
  return {};
}

// Names of folders below, as those of a pipeline of diffusers. No error: they are only a hint.
Names folders_with_checkpoints(const path& folder, std::string_view variant) {
  constexpr std::size_t most = 64;
  Names found;
  Result<Names> below = names_in(folder, Entries::folders);
  if (!below || below->size() > most) return {};
  std::ranges::sort(*below);
  for (const std::string& name : *below) {
    Result<Names> files = names_in(folder / name, Entries::files);
    if (!files) continue;
    const Result<Selection> chosen = select_names(std::move(*files), variant);
    if (chosen && !chosen->files.empty()) found.push_back(name + "/");
  }
  return found;
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

Result<Selection> select_names(Names names, std::string_view variant) {
  std::ranges::sort(names);
  if (variant.empty()) {
    TRY_ASSIGN(Names metadata, select_metadata(names));
    if (!metadata.empty()) return Selection{std::move(metadata), {}};
  }
  for (const Family& family : families) {
    Result<Selection> chosen = FamilySelection(names, family, variant).run();
    if (!chosen) return with_others(std::move(chosen.error()), names, family);
    if (!chosen->files.empty()) return chosen;
  }
  if (!variant.empty())
    return failure(ErrorCode::not_found, "is a folder in which no checkpoint has the variant " +
                                             bytes::quote(variant, 40) + " in its name");
  if (std::ranges::binary_search(names, "zero_to_fp32.py"))
    return failure(
        ErrorCode::not_a_checkpoint,
        "is a checkpoint of DeepSpeed, whose file \"latest\" names the folder of its files; "
        "open one of these, or join the parts of all ranks with zero_to_fp32.py and open "
        "what that writes");
  TRY_ASSIGN(Selection single, select_single_file(names));
  if (!single.files.empty()) return single;
  return failure(ErrorCode::not_a_checkpoint,
                 "is a folder in which there is no checkpoint: expected an index of shards, "
                 "*.safetensors, *.bin, *.gguf, or one file of another format");
}

Result<Selection> select_files(const path& folder, std::string_view variant) {
  TRY_ASSIGN(Names names, names_in(folder, Entries::files));
  const std::string_view foreign = name_foreign(names);
  Result<Selection> chosen = select_names(std::move(names), variant);
  if (chosen || chosen.error().code == ErrorCode::invalid_argument) return chosen;
  if (!foreign.empty()) return failure(ErrorCode::not_a_checkpoint, std::string(foreign));
  const Names below = folders_with_checkpoints(folder, variant);
  if (!below.empty())
    chosen.error().message += "; " + list(below) +
                              (below.size() == 1 ? " below has" : " below have") +
                              " one, and can be opened";
  return chosen;
}

std::optional<std::string> file_of_another_rank(const path& file) {
  const std::string own = file.filename().native();
  if (!is_of_a_rank(own)) return std::nullopt;
  const path folder = file.parent_path();
  Result<Names> names = names_in(folder.empty() ? "." : folder, Entries::files);
  if (!names) return std::nullopt;
  const std::string_view rank = std::string_view(own).substr(0, own.find('-', 6));
  std::ranges::sort(*names);
  const auto other = std::ranges::find_if(*names, [rank](const std::string& name) {
    return is_of_a_rank(name) && !name.starts_with(rank) && name.ends_with(".safetensors");
  });
  return other == names->end() ? std::nullopt : std::optional(*other);
}

Result<void> check_no_update(const std::filesystem::path& folder) {
  std::error_code unknown;
  if (!std::filesystem::exists(folder / update_mark, unknown)) return {};
  return failure(ErrorCode::corrupt,
                 "is of a folder in which weightmap fetch has replaced some files of a set and not "
                 "yet the others, so they are of two versions; if it was killed, fetch the set "
                 "again (" +
                     std::string(update_mark) + " in the folder says so)");
}

}  // namespace weightmap::sets
