#include "runtime/formats/sets/hub_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iomanip>
#include <system_error>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/formats/sets/file_name.hpp"

namespace weightmap::sets {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_characters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

constexpr int longest_name = 96;

bool is_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= longest_name && text.front() != '.' &&
         text.front() != '-' && text.find("--") == std::string_view::npos &&
         text.find("..") == std::string_view::npos &&
         text.find_first_not_of(name_characters) == std::string_view::npos;
}

// Branches may contain slashes, but must stay in the folder.
bool is_revision(std::string_view text) {
  return !text.empty() && text.front() != '/' && text.find("..") == std::string_view::npos &&
         text.find('\0') == std::string_view::npos;
}

fs::path with_home(std::string_view path) {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/")))
    return fs::path(home + std::string(path.substr(1)));
  return path;
}

struct Place {
  const char* variable;
  const char* below = "";
};

// In the folder of the first variable that is set; an empty path if none is.
fs::path first_of(std::initializer_list<Place> places) {
  for (const Place& place : places) {
    const char* const value = std::getenv(place.variable);
    if (value == nullptr || *value == '\0') continue;
    const fs::path folder =
        *place.below == '\0' ? with_home(value) : with_home(value) / place.below;
    std::error_code unknown;
    fs::path whole = fs::absolute(folder, unknown);
    return unknown ? folder : whole;
  }
  return {};
}

std::string without_escaped_slashes(std::string text) {
  constexpr std::string_view escaped = "%2F";
  for (std::size_t at = 0; (at = text.find(escaped, at)) != std::string::npos;)
    text.replace(at++, escaped.size(), "/");
  return text;
}

// Returns the first word of a small file, cut if it is too long for a name; empty if there is none.
std::string word_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> std::setw(longest_name + 1) >> word;
  return word;
}

}  // namespace

std::optional<HubName> HubName::parse(std::string_view text) {
  const std::size_t org = text.find('/');
  if (org == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(text.find('/', org + 1), text.size());
  const std::string_view whole = text.substr(0, end);
  const std::size_t at = whole.find('@');
  HubName name{.model = std::string(whole.substr(0, at))};
  if (at != std::string_view::npos)
    name.revision = without_escaped_slashes(std::string(whole.substr(at + 1)));
  if (end != text.size()) name.file = text.substr(end + 1);
  const bool is_known = is_name(whole.substr(0, org)) && is_name(name.model.substr(org + 1)) &&
                        is_revision(name.revision) &&
                        (end == text.size() || stays_below(name.file));
  return is_known ? std::optional(std::move(name)) : std::nullopt;
}

bool is_hub_commit(std::string_view text) noexcept { return is_name(text); }

fs::path hub_home() {
  return first_of({{"HF_HOME"}, {"XDG_CACHE_HOME", "huggingface"}, {"HOME", ".cache/huggingface"}});
}

fs::path hub_cache() {
  fs::path folder = first_of({{"HF_HUB_CACHE"}, {"HUGGINGFACE_HUB_CACHE"}});
  if (!folder.empty()) return folder;
  folder = hub_home();
  return folder.empty() ? folder : folder / "hub";
}

std::string hub_folder_name(std::string_view model) {
  std::string folder = "models--" + std::string(model);
  folder.replace(folder.find('/'), 1, "--");
  return folder;
}

Result<std::optional<HubSnapshot>> find_in_hub_cache(std::string_view name) {
  const std::size_t at = name.find('@');
  const std::string_view model = name.substr(0, at);
  const std::string_view revision = at == std::string_view::npos ? "main" : name.substr(at + 1);
  const std::size_t slash = model.find('/');
  if (slash == std::string_view::npos || !is_name(model.substr(0, slash)) ||
      !is_name(model.substr(slash + 1)) || !is_revision(revision))
    return std::nullopt;
  std::error_code ignored;
  // The name is a file of a local folder, not a model.
  if (fs::exists(fs::path(model.substr(0, slash)), ignored)) return std::nullopt;
  const fs::path hub = hub_cache();
  if (hub.empty()) return std::nullopt;
  const fs::path repository = hub / hub_folder_name(model);
  const auto missing = [&](const std::string& what) {
    return failure(ErrorCode::not_found, what + " in the hub cache " +
                                             bytes::escape(hub.native(), 4096) +
                                             ", and nothing is fetched from the network");
  };
  if (!fs::is_directory(repository, ignored))
    return missing("there is no model " + bytes::quote(model));
  HubSnapshot snapshot;
  snapshot.ref_file = repository / "refs" / revision;
  snapshot.commit = word_in(snapshot.ref_file);
  if (snapshot.commit.empty()) {
    snapshot.ref_file.clear();
    snapshot.commit = revision;
  }
  if (!is_name(snapshot.commit))
    return missing("there is no revision " + bytes::quote(revision) + " of " + bytes::quote(model));
  snapshot.folder = repository / "snapshots" / snapshot.commit;
  if (!fs::is_directory(snapshot.folder, ignored))
    return missing("there is no revision " + bytes::quote(revision) + " of " + bytes::quote(model));
  return snapshot;
}

bool is_current(const HubSnapshot& snapshot) {
  return snapshot.ref_file.empty() || word_in(snapshot.ref_file) == snapshot.commit;
}

fs::path snapshot_path(const fs::path& blob) {
  const fs::path blobs = blob.parent_path();
  if (blobs.filename() != "blobs") return blob;
  const fs::path snapshots = blobs.parent_path() / "snapshots";
  const std::string hash = blob.filename().native();
  std::error_code failed;
  for (fs::recursive_directory_iterator entry(snapshots, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code no_link;
    const fs::path target = fs::read_symlink(entry->path(), no_link);
    if (!no_link && target.filename() == hash) return entry->path();
  }
  return blob;
}

}  // namespace weightmap::sets
