#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tools/command.hpp"
#include "tools/progress_bar.hpp"
#include "tools/shards/flat_checkpoint.hpp"
#include "tools/shards/shard.hpp"
#include "tools/shards/shard_index.hpp"
#include "tools/size_option.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

struct SplitCommand {
  std::string from;
  std::string directory;
  std::uint64_t max_bytes = 0;
  bool json = false;
};

struct Division {
  std::vector<std::vector<NamedTensor>> shards;
  std::uint64_t total_bytes = 0;
};

// As transformers does it: tensors in their order, a new shard where one would become too large, a
// shard of its own for what is larger than all, and what shares a storage where the first one is.
// Shards are numbered as they become full.
Division divide(const FlatCheckpoint& flat, std::uint64_t max_bytes) {
  Division made;
  std::vector<std::vector<NamedTensor>> shards(1);  // as they are begun
  std::vector<std::size_t> full;
  std::map<std::size_t, std::size_t> shard_of;  // by storage
  std::size_t open = 0;
  std::uint64_t open_bytes = 0;
  for (const NamedTensor& tensor : flat.tensors()) {
    const std::uint64_t bytes = flat.checkpoint().storage(tensor.storage_index).nbytes;
    const auto [place, is_new] = shard_of.emplace(tensor.storage_index, open);
    if (is_new && bytes > max_bytes) {
      place->second = shards.size();
      full.push_back(shards.size());
      shards.emplace_back();
    } else if (is_new && bytes > max_bytes - open_bytes) {
      full.push_back(open);
      place->second = open = shards.size();
      open_bytes = bytes;
      shards.emplace_back();
    } else if (is_new) {
      open_bytes += bytes;
    }
    if (is_new) made.total_bytes += bytes;
    shards[place->second].push_back(tensor);
  }
  if (!shards[open].empty() || full.empty()) full.push_back(open);
  for (const std::size_t shard : full) made.shards.push_back(std::move(shards[shard]));
  return made;
}

std::string shard_name(std::size_t index, std::size_t shards) {
  if (shards == 1) return "pytorch_model.bin";
  return fmt::format("pytorch_model-{:05}-of-{:05}.bin", index + 1, shards);
}

// Shows one bar for all shards.
Progress part_of(ProgressBar& bar, std::uint64_t before, std::uint64_t all) {
  return [&bar, before, all](std::uint64_t done, std::uint64_t) {
    bar.update(before + done, std::max(all, before + done));
    return true;
  };
}

Result<std::vector<std::string>> write_shards(const FlatCheckpoint& flat, const Division& division,
                                              const std::filesystem::path& directory) {
  ProgressBar bar;
  std::vector<std::string> names;
  ShardIndex index{.total_size = division.total_bytes, .file_of = {}};
  std::uint64_t before = 0;
  for (const std::vector<NamedTensor>& tensors : division.shards) {
    names.push_back(shard_name(names.size(), division.shards.size()));
    Shard shard({});
    for (const NamedTensor& tensor : tensors) {
      if (Result<void> ok = shard.add(flat, tensor); !ok) return tl::unexpected<Error>(ok.error());
      index.file_of.emplace(tensor.name, names.back());
    }
    const Result<std::uint64_t> bytes =
        shard.write(directory / names.back(), part_of(bar, before, division.total_bytes));
    if (!bytes) return tl::unexpected<Error>(bytes.error());
    before += *bytes;
  }
  if (names.size() == 1) return names;
  names.emplace_back("pytorch_model.bin.index.json");
  if (Result<void> ok = write_shard_index(index, directory / names.back()); !ok)
    return tl::unexpected<Error>(ok.error());
  return names;
}

Result<int> run_split(Output& out, const SplitCommand& command) {
  const Result<FlatCheckpoint> flat = FlatCheckpoint::open(command.from);
  if (!flat) return tl::unexpected<Error>(flat.error());
  std::error_code error;
  std::filesystem::create_directories(command.directory, error);
  if (error)
    return tl::unexpected<Error>(Error{.code = ErrorCode::io,
                                       .message = "cannot make the directory: " + error.message(),
                                       .file = printable(command.directory)});
  const Division division = divide(*flat, command.max_bytes);
  const Result<std::vector<std::string>> names = write_shards(*flat, division, command.directory);
  if (!names) return tl::unexpected<Error>(names.error());
  if (command.json)
    out.write(to_text(Json{{"file", command.from},
                           {"directory", command.directory},
                           {"files", *names},
                           {"tensors", flat->tensors().size()},
                           {"total_size", division.total_bytes}}) +
              "\n");
  else
    for (const std::string& name : *names)
      out.write(printable((std::filesystem::path(command.directory) / name).native()) + "\n");
  return exit_good;
}

}  // namespace

void add_split(CLI::App& app, Run& run) {
  auto options = std::make_shared<SplitCommand>();
  CLI::App& command = *app.add_subcommand("split", "Write the tensors of a file to several");
  command.add_option("IN", options->from, "A checkpoint that is a dict of tensors")
      ->required()
      ->type_name("");
  command.add_option("DIRECTORY", options->directory, "Where to write; made if it is not there")
      ->required()
      ->type_name("");
  add_size_option(
      command, "--max-size", [options](std::uint64_t bytes) { options->max_bytes = bytes; },
      "Bytes of storages in each; a storage that is larger has a file of its own");
  command.get_option("--max-size")->required();
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "Writes pytorch_model-00001-of-00003.bin and so on, and last of all their index\n"
      "pytorch_model.bin.index.json, as transformers reads them; what fits one file is\n"
      "pytorch_model.bin, which has no index. Tensors that share a storage stay together.\n"
      "Examples:\n"
      "  weightmap split model.pt model/ --max-size 5GB");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_split(out, *options); }; });
}

}  // namespace weightmap::cli
