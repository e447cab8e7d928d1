// A remote model that is brought as a version beside the ones that are there.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/fetch/fetched_version.hpp"
#include "runtime/system/file/name_lock.hpp"
#include "runtime/system/file/version_link.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

Error system_error(const std::string& action, const std::error_code& failed) {
  return {ErrorCode::io,
          "cannot " + action + ": " + failed.message(),
          Error::no_offset,
          {},
          failed.value()};
}

// Gives the files of the present version a second name, so that those which the store still has in
// this version are not fetched. Where that is refused they are.
void begin_with(const fs::path& current, const fs::path& incoming) {
  if (current.empty()) return;
  for (const fs::path& file : os::files_below(current)) {
    const fs::path name = incoming / file.lexically_relative(current);
    std::error_code refused;
    fs::create_directories(name.parent_path(), refused);
    fs::create_hard_link(file, name, refused);
  }
}

// What was there of an earlier fetch or version, and is not of this one.
Result<void> remove_all_but(const std::vector<FetchReport>& fetched, const fs::path& incoming) {
  std::set<fs::path> kept;
  for (const FetchReport& report : fetched) kept.insert(report.path);
  for (const fs::path& file : os::files_below(incoming)) {
    std::error_code failed;
    if (!kept.contains(file)) fs::remove(file, failed);
    if (failed) return about_file(system_error("remove the file", failed), file);
  }
  return {};
}

// Equal for equal versions of equal files: 16 hexadecimal digits. That of a store which names no
// exact version is never equal.
std::string version_of(const std::vector<FetchReport>& fetched, const fs::path& folder) {
  std::vector<std::string> lines;
  for (const FetchReport& report : fetched) {
    const RemoteVersion& version = report.version;
    lines.push_back(report.path.lexically_relative(folder).native() + '\0' + version.tag + '\0' +
                    version.id + '\0' + std::to_string(version.size) + '\n');
    if (!is_exact(version)) lines.back() += std::to_string(std::random_device()());
  }
  std::sort(lines.begin(), lines.end());
  bytes::Sha256 sum;
  for (const std::string& line : lines) sum.add(std::as_bytes(std::span(line)));
  return bytes::to_hex(sum.digest()).substr(0, 16);
}

bool has_same_files(const fs::path& one, const fs::path& other) {
  const std::vector<fs::path> files = os::files_below(one);
  return files.size() == os::files_below(other).size() &&
         std::all_of(files.begin(), files.end(), [&](const fs::path& file) {
           std::error_code absent;
           return fs::equivalent(file, other / file.lexically_relative(one), absent);
         });
}

void move_paths(ModelReport& report, const fs::path& from, const fs::path& folder) {
  report.folder = folder;
  for (FetchReport& file : report.files) file.path = folder / file.path.lexically_relative(from);
}

// Gives the version that has come its name, and the link, if it is new and accepted.
Result<void> make_current(const os::VersionLink& link, const fs::path& incoming,
                          const FetchOptions& options, ModelReport& report) {
  const fs::path current = link.current();
  std::error_code failed;
  if (!current.empty() && has_same_files(incoming, current)) {
    move_paths(report, incoming, current);
    fs::remove_all(incoming, failed);
    return {};
  }
  if (options.accept) TRY(options.accept(incoming));
  report.is_new = true;
  report.folder = link.folder_of(report.version);
  // One whose files were written to since is left to whoever has it open.
  for (int number = 2; report.folder == current; ++number)
    report.folder = link.folder_of(report.version + "." + std::to_string(number));
  fs::remove_all(report.folder, failed);
  if (!failed) fs::rename(incoming, report.folder, failed);
  if (failed) return about_file(system_error("give the folder its name", failed), report.folder);
  move_paths(report, incoming, report.folder);
  return link.lead_to(report.folder);
}

// The version that the link led to before, as far as times tell: a fetch that was killed may have
// led it to the present one, and have removed none.
fs::path newest_beside(const os::VersionLink& link) {
  fs::path newest;
  fs::file_time_type time = fs::file_time_type::min();
  const fs::path current = link.current();
  for (const fs::path& version : link.versions()) {
    std::error_code failed;
    const fs::file_time_type own = fs::last_write_time(version, failed);
    if (version == current || failed || own < time) continue;
    newest = version;
    time = own;
  }
  return newest;
}

}  // namespace

Result<ModelReport> fetch_model(std::unique_ptr<RangeSource> source, const fs::path& named,
                                const FetchOptions& options) {
  TRY_ASSIGN(const os::VersionLink link, about_file(os::VersionLink::at(named), named));
  if (!link.is_of_versions())
    return about_file(
        {ErrorCode::invalid_argument,
         "leads to " + bytes::quote(link.current().native(), 4096) +
             ", which is no version that this link was led to: fetch into that folder"},
        named);
  std::error_code failed;
  fs::create_directories(link.path().parent_path(), failed);
  if (failed) return about_file(system_error("make its folder", failed), named);
  TRY_ASSIGN(const std::optional<os::NameLock> lock,
             about_file(os::NameLock::take(link.path()), named));
  if (!lock) return about_file({ErrorCode::io, "another fetch of it goes on"}, named);
  const fs::path incoming = link.folder_of(os::VersionLink::incoming);
  fs::create_directory(incoming, failed);
  if (!failed && fs::is_empty(incoming, failed)) begin_with(link.current(), incoming);
  if (failed) return about_file(system_error("make the folder", failed), incoming);
  ModelReport report;
  report.previous = link.current();
  Result<std::vector<FetchReport>> fetched = fetch_into(std::move(source), incoming, options);
  if (!fetched) {
    fs::remove(incoming, failed);  // unless something has come
    return tl::unexpected<Error>(fetched.error());
  }
  report.files = std::move(*fetched);
  TRY(remove_all_but(report.files, incoming));
  TRY(os::sync_folder(incoming));
  report.version = version_of(report.files, incoming);
  TRY(about_file(make_current(link, incoming, options, report), named));
  const fs::path kept = report.is_new ? report.previous : newest_beside(link);
  TRY(about_file(link.remove_others({kept}), named));
  return report;
}

bool is_model_link(const fs::path& path) {
  const Result<os::VersionLink> link = os::VersionLink::at(path);
  return link && link->is_of_versions();
}

Result<void> remove_old_versions(const fs::path& named) {
  TRY_ASSIGN(const os::VersionLink link, about_file(os::VersionLink::at(named), named));
  return about_file(link.remove_others({}), named);
}

}  // namespace weightmap
