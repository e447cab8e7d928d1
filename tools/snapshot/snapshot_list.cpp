#include "tools/snapshot/snapshot_list.hpp"

#include <fmt/chrono.h>

#include <chrono>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/snapshot/image_files.hpp"
#include "tools/snapshot/snapshot_folder.hpp"
#include "tools/snapshot/snapshot_start.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

constexpr std::string_view every_snapshot = "all";
constexpr std::size_t shown_of_key = 8;

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

Json snapshot_fields(const Snapshot& each) {
  const Manifest& manifest = each.manifest;
  Json listeners = Json::array();
  for (const Address& listener : manifest.listeners) listeners.push_back(to_string(listener));
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

void print_table(Output& out, const std::vector<Snapshot>& found) {
  const std::vector<Column> columns = {
      {"SNAPSHOT"}, {"SIZE", Column::right}, {"MADE"}, {"STATE"}, {"COMMAND"}};
  print_columns(out, {}, columns, found.size(), [&](std::size_t i) -> std::vector<std::string> {
    const Snapshot& each = found[i];
    return {each.key.substr(0, shown_of_key), human_bytes(each.manifest.image_bytes()),
            date(each.manifest.made_ns), each.trouble.empty() ? "good" : "not used",
            printable(joined_words(each.manifest.command, " "))};
  });
  for (const Snapshot& each : found)
    if (!each.trouble.empty())
      out.write(each.key.substr(0, shown_of_key) + " is not used: " + each.trouble + "\n");
}

}  // namespace

Result<bool> list_snapshots(Output& out, const std::string& path, bool checks, bool json) {
  TRY_ASSIGN(const SnapshotFolder folder, SnapshotFolder::open(path, false));
  const std::vector<Snapshot> found = look_at(folder, checks);
  Json list = Json::array();
  bool all_good = true;
  for (const Snapshot& each : found) {
    all_good = all_good && each.trouble.empty();
    list.push_back(snapshot_fields(each));
  }
  if (json)
    out.write(to_text({{"folder", printable(folder.path().native())}, {"snapshots", list}}) + "\n");
  else if (found.empty())
    out.write("there are no snapshots\n");
  else
    print_table(out, found);
  return all_good;
}

Result<void> remove_snapshots(Output& out, const std::string& path, const std::string& which,
                              bool json) {
  TRY_ASSIGN(const SnapshotFolder folder, SnapshotFolder::open(path, false));
  std::vector<std::string> chosen;
  for (const std::string& key : folder.keys())
    if (which == every_snapshot || key.starts_with(which)) chosen.push_back(key);
  if (chosen.empty() && which != every_snapshot)
    return failure(ErrorCode::not_found, "there is no snapshot " + printable(which));
  if (chosen.size() > 1 && which != every_snapshot)
    return failure(ErrorCode::invalid_argument,
                   std::to_string(chosen.size()) + " snapshots begin with " + printable(which));
  for (const std::string& key : chosen) folder.remove(key);
  out.write(json ? to_text({{"removed", chosen}}) + "\n"
                 : "removed " + count(chosen.size(), "snapshot") + "\n");
  return {};
}

}  // namespace weightmap::cli::snapshot
