#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/lookup.hpp"

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

Result<int> run_tree(Output& out, const TreeOptions& options) {
  TRY_ASSIGN(const Checkpoint checkpoint, open_to_look(options));
  TRY_ASSIGN(const NamedValue from, about(options, start(checkpoint, options)));
  const std::span<const std::string> left_out = checkpoint.left_out_values();
  if (!options.json) {
    print_tree(out, checkpoint, from, options.limits);
  } else {
    TRY_ASSIGN(const Json value, about(options, describe(checkpoint, from)));
    out.write(to_text({{"file", options.file},
                       {"value", value},
                       {"left_out", std::vector<std::string>(left_out.begin(), left_out.end())}}) +
              "\n");
  }
  for (const std::string& name : left_out)
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
                   "All of a long list or dict, not its beginning");
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
