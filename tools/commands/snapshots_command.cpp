#include <fmt/chrono.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/snapshot/checksum.hpp"
#include "tools/snapshot/snapshot_folder.hpp"
#include "tools/snapshot/snapshot_start.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

using snapshot::Manifest;
using snapshot::SnapshotFolder;

constexpr std::string_view all_snapshots = "all";
constexpr std::size_t shown_of_key = 8;

struct SnapshotsOptions {
  std::string folder;
  bool checks = false;
  std::string removed;  // a key, or the beginning of one, or "all"; empty: none
  bool json = false;
  TableStyle style;
};

struct Snapshot {
  std::string key;
  Manifest manifest;    // empty if it could not be read
  std::string trouble;  // why a start does not use it; empty: it does
};

std::string trouble_with(const SnapshotFolder& folder, const std::string& key,
                         const Result<Manifest>& manifest, bool checks) {
  if (!manifest) return to_string(manifest.error());
  if (checks)
    if (const Result<void> whole = verify_files(folder.image_of(key), manifest->image); !whole)
      return to_string(whole.error());
  return change_since(*manifest);
}

std::vector<Snapshot> look_at(const SnapshotFolder& folder, bool checks) {
  std::vector<Snapshot> found;
  for (const std::string& key : folder.keys()) {
    Result<Manifest> manifest = folder.manifest(key);
    std::string trouble = trouble_with(folder, key, manifest, checks);
    found.push_back({key, manifest ? std::move(*manifest) : Manifest{}, std::move(trouble)});
  }
  return found;
}

Json describe_snapshot(const Snapshot& each) {
  const Manifest& manifest = each.manifest;
  Json listeners = Json::array();
  for (const snapshot::Address& listener : manifest.listeners)
    listeners.push_back(to_string(listener));
  return {{"key", each.key},
          {"command", manifest.command},
          {"made_ns", manifest.made_ns},
          {"image_bytes", manifest.image_bytes()},
          {"files", manifest.files.size()},
          {"listeners", std::move(listeners)},
          {"snapshot_here", manifest.is_made_here},
          {"criu", manifest.criu},
          {"kernel", manifest.machine.kernel},
          {"processor", manifest.machine.processor},
          {"trouble", each.trouble.empty() ? Json(nullptr) : Json(each.trouble)}};
}

std::string date(std::int64_t ns) {
  const std::chrono::system_clock::time_point time{
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(ns))};
  return fmt::format("{:%Y-%m-%d %H:%M}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(time)));
}

void print_table(Output& out, const TableStyle& style, const std::vector<Snapshot>& found) {
  const std::vector<Column> columns = {
      {"SNAPSHOT"}, {"SIZE", Column::right}, {"MADE"}, {"STATE"}, {"COMMAND"}};
  print_columns(out, style, columns, found.size(), [&](std::size_t i) -> std::vector<std::string> {
    const Snapshot& each = found[i];
    return {each.key.substr(0, shown_of_key), style.bytes(each.manifest.image_bytes()),
            date(each.manifest.made_ns), each.trouble.empty() ? "good" : "not used",
            printable(joined_words(each.manifest.command, " "))};
  });
  if (style.tsv) return;
  for (const Snapshot& each : found)
    if (!each.trouble.empty())
      out.write(each.key.substr(0, shown_of_key) + " is not used: " + each.trouble + "\n");
}

Result<int> remove(Output& out, const SnapshotFolder& folder, const SnapshotsOptions& options) {
  std::vector<std::string> chosen;
  for (const std::string& key : folder.keys())
    if (options.removed == all_snapshots || key.starts_with(options.removed)) chosen.push_back(key);
  if (chosen.empty() && options.removed != all_snapshots)
    return failure(ErrorCode::not_found, "there is no snapshot " + printable(options.removed));
  if (chosen.size() > 1 && options.removed != all_snapshots)
    return failure(
        ErrorCode::invalid_argument,
        std::to_string(chosen.size()) + " snapshots begin with " + printable(options.removed));
  for (const std::string& key : chosen) folder.remove(key);
  if (options.json)
    out.write(to_text({{"removed", chosen}}) + "\n");
  else
    out.write("removed " + count(chosen.size(), "snapshot") + "\n");
  return exit_good;
}

Result<int> run_snapshots(Output& out, const SnapshotsOptions& options) {
  TRY_ASSIGN(const SnapshotFolder folder, SnapshotFolder::open(options.folder, false));
  if (!options.removed.empty()) return remove(out, folder, options);
  const std::vector<Snapshot> found = look_at(folder, options.checks);
  Json list = Json::array();
  bool all_good = true;
  for (const Snapshot& each : found) {
    all_good = all_good && each.trouble.empty();
    list.push_back(describe_snapshot(each));
  }
  if (options.json)
    out.write(to_text({{"folder", printable(folder.path().native())}, {"snapshots", list}}) + "\n");
  else if (found.empty() && !options.style.tsv)
    out.write("there are no snapshots\n");
  else
    print_table(out, options.style, found);
  return options.checks && !all_good ? exit_failed : exit_good;
}

}  // namespace

void add_snapshots(CLI::App& app, Run& run) {
  auto options = std::make_shared<SnapshotsOptions>();
  CLI::App& command =
      *app.add_subcommand("snapshots", "List, check and remove what `run --snapshot` has made");
  command.add_option("DIR", options->folder, "The folder of snapshots")->required()->type_name("");
  CLI::Option* const check = command.add_flag(
      "--check", options->checks, "Also compare the checksums of all files of the images");
  command
      .add_option("--remove", options->removed,
                  "Remove a snapshot, named by the beginning of its key, or all")
      ->excludes(check)
      ->type_name("SNAPSHOT|all");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  add_table_options(command, options->style);
  command.footer(
      "A snapshot that is not used is of another kernel or processor, or of files that have "
      "changed\n"
      "since, or is damaged; the next start of its command makes a new one. With --check the exit\n"
      "status is 1 if there is one.\n"
      "Examples:\n"
      "  weightmap snapshots /var/lib/snapshots\n"
      "  weightmap snapshots /var/lib/snapshots --check\n"
      "  weightmap snapshots /var/lib/snapshots --remove all");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_snapshots(out, *options); }; });
}

}  // namespace weightmap::cli
