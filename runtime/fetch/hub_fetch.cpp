#include "weightmap/hub_fetch.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/fetch/fetch_file.hpp"
#include "runtime/fetch/hub_source.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t longest_small_file = std::uint64_t{64} << 20;

// What tokenizers and configurations are called. An index of another format than the checkpoint's
// would lead to files that are not there.
bool belongs_to_checkpoint(const sets::HubFile& file) {
  const std::string& name = file.name;
  constexpr std::array<const char*, 4> endings = {".json", ".txt", ".jinja", ".model"};
  return name.find('/') == std::string::npos && file.size <= longest_small_file &&
         !name.starts_with('.') && name.find(".index") == std::string::npos &&
         (name.starts_with("tokenizer") ||
          std::ranges::any_of(endings, [&](const char* end) { return name.ends_with(end); }));
}

Result<void> make_folder(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (!failed) return {};
  return about_file({ErrorCode::io, "cannot make the folder: " + failed.message()}, path);
}

Result<void> write_file(const fs::path& path, std::span<const std::byte> content) {
  TRY_ASSIGN(NewFile file, NewFile::create(path));
  TRY(file.write(content));
  return file.commit();
}

// Links `path` to `target`, in place of what has the name.
Result<void> make_link(const fs::path& target, const fs::path& path) {
  std::error_code failed;
  if (fs::read_symlink(path, failed) == target) return {};
  fs::path made = path;
  made += ".link-" + std::to_string(std::random_device()());
  fs::create_symlink(target, made, failed);
  if (!failed) fs::rename(made, path, failed);
  if (!failed) return {};
  std::error_code none;
  fs::remove(made, none);
  return about_file({ErrorCode::io, "cannot make the link: " + failed.message()}, path);
}

// The files of one commit, on their way into the cache:
//
//   models--org--name/refs/main                 the commit
//                     snapshots/COMMIT/FILE     a link to ../../blobs/HASH
//                     blobs/HASH
class HubFetch {
 public:
  HubFetch(HubClient& client, sets::HubName name, sets::HubListing listing,
           const FetchOptions& options)
      : client_(client),
        name_(std::move(name)),
        listing_(std::move(listing)),
        options_(options),
        folder_(sets::hub_cache() / sets::hub_folder_name(name_.model)) {
    report_.commit = listing_.commit;
    report_.snapshot = folder_ / "snapshots" / listing_.commit;
  }

  Result<HubFetchReport> run() {
    TRY(make_folder(folder_ / "blobs"));
    for (const sets::HubFile& file : listing_.files)
      if (belongs_to_checkpoint(file)) TRY(fetch_small(file));
    std::vector<std::string> checkpoint{name_.file};
    if (name_.file.empty()) {
      TRY_ASSIGN(checkpoint, listing_.checkpoint());
    }
    for (const std::string& file : checkpoint) TRY(fetch_set(file));
    TRY(refer());
    return std::move(report_);
  }

 private:
  fs::path blob_of(const sets::HubFile& file) const { return folder_ / "blobs" / file.blob; }

  bool is_cached(const sets::HubFile& file) const {
    std::error_code none;
    return fs::file_size(blob_of(file), none) == file.size;
  }

  Result<void> link(const sets::HubFile& file) const {
    const fs::path path = report_.snapshot / file.name;
    TRY(make_folder(path.parent_path()));
    return make_link(blob_of(file).lexically_relative(path.parent_path()), path);
  }

  Result<void> fetch_small(const sets::HubFile& file) {
    if (!is_cached(file)) {
      TRY_ASSIGN(const std::string content,
                 client_.get(hub_path(name_, listing_.commit, file.name)));
      TRY(check_size(file, content.size(), file.name));
      TRY(write_file(blob_of(file), std::as_bytes(std::span(content))));
      report_.files.push_back({.path = report_.snapshot / file.name,
                               .version = {.size = file.size},
                               .counts = {.requests = 1, .bytes = file.size},
                               .file_bytes = file.size});
    }
    return link(file);
  }

  // A file of the checkpoint, with those that it names.
  Result<void> fetch_set(const std::string& first) {
    TRY_ASSIGN(std::unique_ptr<RangeSource> source,
               open_hub_file(client_, name_, listing_.commit, first));
    const std::string shown = source->name();
    Result<Checkpoint> opened = open_to_fetch(std::move(source));
    if (!opened) return about_file(std::move(opened.error()), shown);
    const Checkpoint::State& state = Checkpoint::Access::state(*opened);
    const fs::path parent = fs::path(first).parent_path();
    for (const SourceFile& source_file : state.sources.opened()) {
      Result<void> fetched =
          fetch_one(*opened, source_file, (parent / source_file.name_beside).native());
      if (!fetched) return about_file(std::move(fetched.error()), source_file.info.path);
    }
    return {};
  }

  Result<void> fetch_one(const Checkpoint& checkpoint, const SourceFile& source,
                         const std::string& name) {
    const sets::HubFile* const file = listing_.find(name);
    if (file == nullptr)
      return failure(ErrorCode::not_found, "the model has no file " + bytes::quote(name));
    TRY(check_size(*file, source.remote->version().size, source.info.path));
    if (!is_cached(*file)) {
      const bool is_set = Checkpoint::Access::state(checkpoint).is_set();
      const fs::path blob = blob_of(*file);
      TRY_ASSIGN(FetchReport report,
                 fetch_file({checkpoint, source, blob, true, !is_set}, options_));
      report.path = report_.snapshot / name;
      report_.files.push_back(std::move(report));
    }
    return link(*file);
  }

  static Result<void> check_size(const sets::HubFile& file, std::uint64_t bytes,
                                 const fs::path& shown) {
    if (bytes == file.size) return {};
    return about_file(
        {ErrorCode::corrupt,
         "has " + std::to_string(bytes) + " bytes, and the hub lists " + std::to_string(file.size)},
        shown);
  }

  // A commit stands for itself.
  Result<void> refer() const {
    if (name_.revision == listing_.commit) return {};
    const fs::path ref = folder_ / "refs" / name_.revision;
    TRY(make_folder(ref.parent_path()));
    return write_file(ref, std::as_bytes(std::span(listing_.commit)));
  }

  HubClient& client_;
  const sets::HubName name_;
  const sets::HubListing listing_;
  const FetchOptions& options_;
  const fs::path folder_;  // of the model
  HubFetchReport report_;
};

Result<HubFetchReport> fetch_model(HubClient& client, sets::HubName name,
                                   const FetchOptions& options) {
  if (sets::hub_cache().empty())
    return failure(ErrorCode::invalid_argument,
                   "there is no cache of huggingface_hub: none of HF_HUB_CACHE, HF_HOME, "
                   "XDG_CACHE_HOME and HOME is set");
  TRY_ASSIGN(sets::HubListing listing, list_hub_model(client, name));
  return HubFetch(client, std::move(name), std::move(listing), options).run();
}

}  // namespace

Result<HubFetchReport> fetch_to_hub_cache(HubClient& client, const std::string& name,
                                          const FetchOptions& options) {
  TRY_ASSIGN(sets::HubName model, parse_hub_url(name));
  Result<HubFetchReport> fetched = fetch_model(client, std::move(model), options);
  if (!fetched) return about_file(std::move(fetched.error()), name);
  return fetched;
}

}  // namespace weightmap
