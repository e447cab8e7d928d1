#include "runtime/checkpoint/open_sources.hpp"

#include <cerrno>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/counted.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/os/file/snapshot.hpp"
#include "runtime/sets/select_files.hpp"
#include "runtime/sets/shard_name.hpp"

namespace weightmap {
namespace {

// The file as `protection` has it.
Result<os::File> protect(os::File file, const OpenOptions& options) {
  if (*options.protection != Protection::snapshot) return file;
  if (*options.writable && *options.sharing == Sharing::shared)
    return failure(ErrorCode::invalid_argument,
                   "writes to a snapshot would not reach the file: it is opened writable with "
                   "sharing=private, or with protection=map or guard");
  Result<os::File> snapshot = os::take_snapshot(file);
  if (!snapshot) snapshot.error().message.insert(0, "protection=snapshot: ");
  return snapshot;
}

// A file below the folder.
GivenPath in_folder(const std::filesystem::path& folder, const std::string& shown_folder,
                    const std::filesystem::path& name) {
  const std::string slash = shown_folder.empty() || shown_folder.ends_with('/') ? "" : "/";
  return {folder / name, shown_folder + slash + shown_name(name), {}};
}

// What helps a process that may not open `more` files.
void add_limit_hint(Error& error, std::size_t more) {
  if (error.os_error == EMFILE)
    error.message +=
        " with " + bytes::counted(more, "more file") + "; allow more open files (ulimit -n)";
}

Result<void> add_folder(Sources& sources, const GivenPath& folder, const OpenOptions& options) {
  Result<std::vector<std::filesystem::path>> files = sets::select_files(folder.path);
  if (!files) return about_shown(std::move(files.error()), folder.shown);
  for (const std::filesystem::path& file : *files) {
    Result<void> added = add_source(sources, in_folder(folder.path, folder.shown, file), options);
    if (added) continue;
    add_limit_hint(added.error(), files->size() - 1);
    return added;
  }
  return {};
}

// What is no file may be the name of a model; `missing` is what it is if it is not.
Result<void> add_from_hub(Sources& sources, const GivenPath& name, const OpenOptions& options,
                          std::optional<sets::HubSnapshot>& hub, Error missing) {
  Result<std::optional<sets::HubSnapshot>> found = sets::find_in_hub_cache(name.as_given);
  if (!found) {
    missing.message += "; " + found.error().message;
    return tl::unexpected<Error>(std::move(missing));
  }
  if (!*found) return tl::unexpected<Error>(std::move(missing));
  hub = std::move(**found);
  return add_folder(sources, {hub->folder, shown_name(hub->folder), {}}, options);
}

}  // namespace

GivenPath given(const std::filesystem::path& path) {
  std::error_code unknown;  // the working directory is gone: then the path as it was given
  GivenPath named{std::filesystem::absolute(path, unknown), shown_name(path), path.native()};
  if (unknown) named.path = path;
  return named;
}

Result<SourceFile> make_source(os::File file, std::string name, const OpenOptions& options) {
  const Generation opened = file.generation();
  TRY_ASSIGN(os::File used, protect(std::move(file), options));
  return SourceFile{std::move(used), {{}, opened, opened.size, 0}, std::move(name)};
}

namespace {

Result<SourceFile> open_source(const GivenPath& from, const OpenOptions& options) {
  Result<os::File> file =
      os::File::open(from.path, *options.writable && *options.sharing == Sharing::shared);
  if (!file) return about_shown(std::move(file.error()), from.shown);
  Result<SourceFile> source = make_source(std::move(*file), from.shown, options);
  if (!source) return about_shown(std::move(source.error()), from.shown);
  source->info.path = from.path;
  return source;
}

}  // namespace

Result<void> add_source(Sources& sources, const GivenPath& from, const OpenOptions& options) {
  TRY_ASSIGN(SourceFile source, open_source(from, options));
  if (Result<void> placed = sources.add(std::move(source)); !placed)
    return about_shown(std::move(placed.error()), from.shown);
  return {};
}

Result<void> add_given(Sources& sources, const GivenPath& from, const OpenOptions& options,
                       std::optional<sets::HubSnapshot>& hub) {
  if (sets::is_rank_metadata(from.path.filename().native()))
    return add_folder(
        sources, {from.path.parent_path(), from.shown.substr(0, from.shown.rfind('/') + 1), {}},
        options);
  Result<void> added = add_source(sources, from, options);
  if (added) return added;
  if (added.error().os_error == EISDIR) return add_folder(sources, from, options);
  if (added.error().os_error != ENOENT) return added;
  return add_from_hub(sources, from, options, hub, std::move(added.error()));
}

namespace {

// Files in the folder of the first of the sources, which `why` says that it needs.
Result<void> add_beside(Sources& sources, const std::filesystem::path& folder,
                        const std::string& shown_folder, std::span<const std::string> names,
                        const std::string& why, const OpenOptions& options) {
  for (const std::string& name : names) {
    Result<void> added = add_source(sources, in_folder(folder, shown_folder, name), options);
    if (added) continue;
    Error& error = added.error();
    error.message += why;
    add_limit_hint(error, names.size() - 1);
    return added;
  }
  return {};
}

std::string shown_folder_of(const SourceFile& file) {
  return file.shown_name.substr(0, file.shown_name.rfind('/') + 1);
}

}  // namespace

Result<void> add_named_files(Sources& sources, std::span<const std::string> files,
                             std::string_view kind, const OpenOptions& options) {
  if (files.empty()) return {};
  const SourceFile& from = sources.front();
  const std::filesystem::path folder = from.info.path.parent_path();
  if (folder.empty())
    return failure(ErrorCode::invalid_argument,
                   "is an index of shards; it is opened by its path, beside which they lie");
  const std::string why = "; the " + std::string(kind) + " " + from.shown_name + " names it";
  return add_beside(sources, folder, shown_folder_of(from), files, why, options);
}

Result<std::vector<std::string>> names_of_split(const std::filesystem::path& path,
                                                const format::Split& split) {
  constexpr std::string_view extension = ".gguf";
  const std::string file = path.filename();
  const std::string part =
      std::to_string(split.number + 1) + " of " + std::to_string(split.count) + " files";
  if (file.empty())
    return failure(ErrorCode::invalid_argument,
                   "says that it is " + part + "; it is opened by its path, beside which they lie");
  const std::optional<sets::ShardName> name =
      file.ends_with(extension) ? sets::shard_name(file, extension) : std::nullopt;
  const sets::ShardName wanted{name ? name->stem : "<prefix>", split.number + 1, split.count};
  if (!name || name->number != wanted.number || name->count != wanted.count)
    return failure(ErrorCode::corrupt, "says that it is " + part + ", and is not called " +
                                           bytes::quote(sets::to_string(wanted, extension)) +
                                           ", by which the others would be found");
  std::vector<std::string> names;
  for (std::uint32_t number = 1; number <= split.count; ++number)
    names.push_back(sets::to_string({name->stem, number, split.count}, extension));
  return names;
}

Result<Sources> open_split(const SourceFile& part, const format::Split& split,
                           const OpenOptions& options) {
  TRY_ASSIGN(const std::vector<std::string> names, names_of_split(part.info.path, split));
  const std::string why =
      "; " + part.shown_name + " says that it is one of " + std::to_string(split.count) + " files";
  Sources sources;
  TRY(add_beside(sources, part.info.path.parent_path(), shown_folder_of(part), names, why,
                 options));
  return sources;
}

}  // namespace weightmap
