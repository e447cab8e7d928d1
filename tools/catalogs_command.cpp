#include <memory>
#include <vector>

#include "tools/command.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/shared_catalogs.hpp"

namespace weightmap::cli {
namespace {

using Files = std::vector<SharedFile>;

Json describe_shared(const SharedFile& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"state", to_string(file.state)},
          {"checkpoint", file.checkpoint.empty() ? Json(nullptr) : Json(file.checkpoint)},
          {"tensors", file.tensors}};
}

void print_json(Output& out, const std::string& key, const Files& files) {
  Json list = Json::array();
  for (const SharedFile& file : files) list.push_back(describe_shared(file));
  out.write(to_text({{key, list}}) + "\n");
}

void print_table(Output& out, const Files& files) {
  const std::vector<Column> columns = {{"STATE", Column::left},
                                       {"TENSORS", Column::right},
                                       {"SIZE", Column::right},
                                       {"CHECKPOINT", Column::left}};
  if (!files.empty())
    print_columns(out, {}, columns, files.size(), [&](std::size_t i) -> std::vector<std::string> {
      const SharedFile& file = files[i];
      return {
          std::string(to_string(file.state)), std::to_string(file.tensors), human_bytes(file.bytes),
          file.checkpoint.empty() ? "(" + printable(file.name) + ")" : printable(file.checkpoint)};
    });
}

std::string summary(const Files& files, std::string_view noun) {
  std::uint64_t bytes = 0;
  for (const SharedFile& file : files) bytes += file.bytes;
  return count(files.size(), noun) + ", " + human_bytes(bytes);
}

Result<int> run_ls(Output& out, bool json) {
  const Result<Files> files = shared_catalogs();
  if (!files) return tl::unexpected<Error>(files.error());
  if (json) {
    print_json(out, "catalogs", *files);
    return exit_good;
  }
  print_table(out, *files);
  out.write(summary(*files, "catalog") + "\n");
  return exit_good;
}

Result<int> run_gc(Output& out, bool json) {
  const Result<Files> removed = remove_stale_catalogs();
  if (!removed) return tl::unexpected<Error>(removed.error());
  if (json) {
    print_json(out, "removed", *removed);
    return exit_good;
  }
  print_table(out, *removed);
  out.write(summary(*removed, "file") + " removed\n");
  return exit_good;
}

void add_action(CLI::App& parent, Run& run, const std::string& name, const std::string& help,
                Result<int> (*action)(Output&, bool)) {
  auto json = std::make_shared<bool>(false);
  CLI::App& command = *parent.add_subcommand(name, help);
  command.add_flag("--json", *json, "One JSON document on standard output");
  command.callback(
      [json, action, &run] { run = [json, action](Output& out) { return action(out, *json); }; });
}

}  // namespace

void add_catalogs(CLI::App& app, Run& run) {
  CLI::App& command =
      *app.add_subcommand("catalogs", "List the catalogs that processes share, or clear them up");
  command.require_subcommand(1);
  add_action(command, run, "ls", "List the catalogs and whether their files are still the same",
             run_ls);
  add_action(command, run, "gc", "Remove those of files that changed or are gone, and leftovers",
             run_gc);
  command.footer(
      "Commands and programs publish and use catalogs with --shared-catalog or\n"
      "WEIGHTMAP_SHARED_CATALOG=1; a checkpoint is then parsed once for all of them.\n"
      "Examples:\n"
      "  weightmap catalogs ls\n"
      "  weightmap catalogs gc --json | jq '.removed[].checkpoint'");
}

}  // namespace weightmap::cli
