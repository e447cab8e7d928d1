#include "runtime/formats/sets/hub.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iomanip>
#include <memory>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/document.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/select_files.hpp"

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

tl::unexpected<Error> not_a_listing(const std::string& why) {
  return failure(ErrorCode::corrupt, "the hub's list of the model's files " + why);
}

std::string text_at(const Value& value, std::string_view key) {
  const std::optional<Value> found = value.find(key);
  return std::string(found ? found->string().value_or("") : "");
}

// The hash of a large file is that of its bytes; of others it is git's, of its header and bytes.
std::string blob_of(const Value& file) {
  const std::optional<Value> large = file.find("lfs");
  const bool is_large = large && large->kind() == Value::Kind::dict;
  return is_large ? text_at(*large, "sha256") : text_at(file, "blobId");
}

bool is_hash(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<HubFile> file_of(const Value& value) {
  HubFile file{.name = text_at(value, "rfilename"), .blob = blob_of(value)};
  if (!stays_below(file.name))
    return not_a_listing("has the name " + bytes::quote(file.name) +
                         ", which would leave a folder");
  const std::optional<Value> size = value.find("size");
  const std::int64_t bytes = size ? size->integer().value_or(-1) : -1;
  if (!is_hash(file.blob) || bytes < 0)
    return not_a_listing("has " + bytes::quote(file.name) + " without its hash or its size");
  file.size = static_cast<std::uint64_t>(bytes);
  return file;
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
  snapshot.folder = repository / "snapshots" / snapshot.commit;
  if (!is_name(snapshot.commit) || !fs::is_directory(snapshot.folder, ignored))
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

const HubFile* HubListing::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(files, name, &HubFile::name);
  return found == files.end() ? nullptr : &*found;
}

Result<std::vector<std::string>> HubListing::checkpoint() const {
  std::vector<std::string> names;
  for (const HubFile& file : files)
    if (file.name.find('/') == std::string::npos) names.push_back(file.name);
  TRY_ASSIGN(Selection chosen, select_names(std::move(names)));
  return std::move(chosen.files);
}

Result<HubListing> read_hub_listing(std::string_view json) {
  const Result<std::unique_ptr<json::Document>> document = json::Document::parse(json);
  if (!document) return not_a_listing("is no JSON: " + document.error().message);
  const Value answer = (*document)->root();
  HubListing listing{.commit = text_at(answer, "sha")};
  const std::optional<Value> files = answer.find("siblings");
  if (!is_hub_commit(listing.commit) || !files || files->kind() != Value::Kind::list)
    return not_a_listing("has no commit or no files");
  for (const Value& value : files->elements()) {
    TRY_ASSIGN(HubFile file, file_of(value));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace weightmap::sets
