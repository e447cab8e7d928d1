#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tools/command.hpp"
#include "tools/progress_bar.hpp"
#include "tools/shards/flat_checkpoint.hpp"
#include "tools/shards/shard.hpp"
#include "tools/shards/shard_index.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

struct MergeCommand {
  std::string to;
  std::vector<std::string> from;
  bool json = false;
};

struct Inputs {
  std::vector<std::filesystem::path> files;
  ShardIndex index;
  std::filesystem::path index_path;  // empty: there is none
};

tl::unexpected<Error> refuse(ErrorCode code, const std::filesystem::path& path,
                             std::string message) {
  return tl::unexpected<Error>(
      Error{.code = code, .message = std::move(message), .file = printable(path.native())});
}

Result<Inputs> inputs_of(const MergeCommand& command) {
  Inputs inputs;
  if (command.from.size() > 1 || !command.from.front().ends_with(".json")) {
    inputs.files.assign(command.from.begin(), command.from.end());
    return inputs;
  }
  inputs.index_path = command.from.front();
  Result<ShardIndex> index = read_shard_index(inputs.index_path);
  if (!index) return tl::unexpected<Error>(index.error());
  inputs.index = std::move(*index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : inputs.index.file_of) {
    if (!names.insert(file).second) continue;
    const std::filesystem::path path = inputs.index_path.parent_path() / file;
    if (!std::filesystem::exists(path))
      return refuse(
          ErrorCode::not_found, inputs.index_path,
          "names " + printable(file) + " for " + printable(tensor) + ", and there is no such file");
  }
  for (const std::string& name : names)
    inputs.files.push_back(inputs.index_path.parent_path() / name);
  return inputs;
}

// The index says which file has which tensor, and nothing else may be there.
Result<void> check_index(const Inputs& inputs, const std::deque<FlatCheckpoint>& shards) {
  if (inputs.index_path.empty()) return {};
  std::map<std::string_view, const FlatCheckpoint*> found;
  for (const FlatCheckpoint& shard : shards)
    for (const NamedTensor& tensor : shard.tensors()) {
      const auto named = inputs.index.file_of.find(std::string(tensor.name));
      if (named == inputs.index.file_of.end() || named->second != shard.path().filename())
        return refuse(
            ErrorCode::invalid_argument, shard.path(),
            "has " + printable(tensor.name) + ", for which " +
                printable(inputs.index_path.native()) + " names " +
                (named == inputs.index.file_of.end() ? "no file" : printable(named->second)));
      found.emplace(tensor.name, &shard);
    }
  for (const auto& [tensor, file] : inputs.index.file_of)
    if (!found.contains(tensor))
      return refuse(ErrorCode::not_found, inputs.index_path,
                    "says that " + printable(tensor) + " is in " + printable(file) +
                        ", which does not have it");
  return {};
}

Result<Shard> joined(const std::deque<FlatCheckpoint>& shards) {
  Shard all({});
  std::map<std::string_view, const FlatCheckpoint*> from;
  for (const FlatCheckpoint& shard : shards)
    for (const NamedTensor& tensor : shard.tensors()) {
      const auto [first, is_new] = from.emplace(tensor.name, &shard);
      if (!is_new)
        return refuse(ErrorCode::invalid_argument, shard.path(),
                      "has " + printable(tensor.name) + ", and so has " +
                          printable(first->second->path().native()));
      if (Result<void> ok = all.add(shard, tensor); !ok) return tl::unexpected<Error>(ok.error());
    }
  return all;
}

Result<int> run_merge(Output& out, const MergeCommand& command) {
  const Result<Inputs> inputs = inputs_of(command);
  if (!inputs) return tl::unexpected<Error>(inputs.error());
  std::deque<FlatCheckpoint> shards;
  std::uint64_t tensors = 0;
  for (const std::filesystem::path& file : inputs->files) {
    Result<FlatCheckpoint> shard = FlatCheckpoint::open(file);
    if (!shard) return tl::unexpected<Error>(shard.error());
    tensors += shard->tensors().size();
    shards.push_back(std::move(*shard));
  }
  if (Result<void> ok = check_index(*inputs, shards); !ok) return tl::unexpected<Error>(ok.error());
  const Result<Shard> all = joined(shards);
  if (!all) return tl::unexpected<Error>(all.error());
  ProgressBar bar;
  const Result<std::uint64_t> bytes = all->write(command.to, bar.follow());
  if (!bytes) return tl::unexpected<Error>(bytes.error());
  if (command.json)
    out.write(to_text(Json{{"target", command.to},
                           {"files", shards.size()},
                           {"tensors", tensors},
                           {"bytes", *bytes}}) +
              "\n");
  else
    out.write(printable(command.to) + ": " + count(tensors, "tensor") + " of " +
              count(shards.size(), "file") + ", " + human_bytes(*bytes) + "\n");
  return exit_good;
}

}  // namespace

void add_merge(CLI::App& app, Run& run) {
  auto options = std::make_shared<MergeCommand>();
  CLI::App& command = *app.add_subcommand("merge", "Write the tensors of several files to one");
  command.add_option("OUT", options->to, "The file to write")->required()->type_name("");
  command
      .add_option("IN", options->from,
                  "Checkpoints that are dicts of tensors, or one index of such (*.index.json)")
      ->required()
      ->type_name("");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "Examples:\n"
      "  weightmap merge model.pt pytorch_model.bin.index.json\n"
      "  weightmap merge model.pt encoder.pt decoder.pt");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_merge(out, *options); }; });
}

}  // namespace weightmap::cli
