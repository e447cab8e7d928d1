#include <cstdio>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_selection.hpp"

namespace weightmap::cli {
namespace {

struct TreeOptions : CommonOptions {
  std::string path;
  TreeLimits limits;
  bool raw = false;
};

Result<NamedValue> start(const Checkpoint& checkpoint, const TreeOptions& options) {
  if (options.raw) return NamedValue{"", checkpoint.root()};
  if (!options.path.empty()) return look_up_value(checkpoint, options.path);
  TRY_ASSIGN(const Value root, checkpoint.values());
  return NamedValue{"", root};
}

// What `tree` shows: a value, tensors beside the values, or both.
struct Shown {
  std::optional<NamedValue> from;
  std::vector<std::string_view> tensors;
};

Result<Shown> choose(const Checkpoint& checkpoint, const TreeOptions& options) {
  Result<NamedValue> from = start(checkpoint, options);
  if (from && !options.path.empty()) return Shown{std::move(*from), {}};
  Shown shown{{}, tensors_apart(checkpoint, options.path)};
  if (!from && shown.tensors.empty()) return tl::unexpected<Error>(from.error());
  if (from) shown.from = std::move(*from);
  return shown;
}

void print(Output& out, const Checkpoint& checkpoint, const TreeOptions& options,
           const Shown& shown) {
  const bool has_items =
      shown.from && shown.from->value.size() + shown.from->value.item_count() > 0;
  if (has_items || shown.tensors.empty()) print_tree(out, checkpoint, *shown.from, options.limits);
  print_tensors(out, checkpoint, shown.tensors, options.limits);
  if (const CheckpointInfo& info = checkpoint.info();
      options.path.empty() && info.format != Format::dcp && !info.unsupported.empty())
    out.write("not shown: " + unlisted_text(info) + "\n");
}

Result<void> print_json(Output& out, const Checkpoint& checkpoint, const TreeOptions& options,
                        const Shown& shown) {
  Json value;
  if (shown.from) {
    TRY_ASSIGN(value, describe(checkpoint, *shown.from));
  }
  const std::span<const std::string> left_out = left_out_values(checkpoint);
  out.write(to_text({{"file", options.file},
                     {"value", value},
                     {"tensors", describe_tensors(checkpoint, shown.tensors)},
                     {"left_out", std::vector<std::string>(left_out.begin(), left_out.end())}}) +
            "\n");
  return {};
}

Result<int> run_tree(Output& out, const TreeOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, open_to_look(options));
  TRY_ASSIGN(const Shown shown, about(options, choose(checkpoint, options)));
  if (options.json)
    TRY(about(options, print_json(out, checkpoint, options, shown)));
  else
    print(out, checkpoint, options, shown);
  for (const std::string& name : left_out_values(checkpoint))
    std::fprintf(stderr, "weightmap: left out: %s, an object with a tensor in it\n",
                 printable(name).c_str());
  return exit_good;
}

}  // namespace

void add_tree(CLI::App& app, Run& run) {
  auto options = std::make_shared<TreeOptions>();
  CLI::App& command =
      *app.add_subcommand("tree", "Show everything in the file: numbers, settings, tensors");
  add_common_options(command, *options);
  command.add_option("PATH", options->path, "Only what is below: keys joined by dots")
      ->type_name("");
  command.add_option("-d,--depth", options->limits.depth, "Only N levels below the first")
      ->type_name("N")
      ->check(CLI::Range(0, 65535));
  command.add_flag("-a,--all", options->limits.all,
                   "All of a long list or dict, not only its beginning");
  command
      .add_flag("--raw", options->raw,
                "The metadata of torch.distributed.checkpoint as it is, not what was saved")
      ->excludes("PATH");
  add_verify_option(command, *options);
  add_remote_options(command, options->remote);
  command.footer(
      "Nothing in the file is run: an object is shown by its class, its items and attributes.\n"
      "Examples:\n"
      "  weightmap tree train.pt\n"
      "  weightmap tree --depth 1 train.pt\n"
      "  weightmap tree train.pt optimizer.param_groups\n"
      "  weightmap tree --json train.pt | jq .value.epoch");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_tree(out, *options); }; });
}

}  // namespace weightmap::cli
