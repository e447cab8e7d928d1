#include "runtime/checkpoint/open_sources.hpp"

#include <cerrno>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/format/members.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "runtime/system/process/descriptor_limit.hpp"

namespace weightmap {
namespace {

// The file as `protection` has it.
Result<os::File> protect(os::File file, const OpenOptions& options) {
  if (*options.protection != Protection::reflink) return file;
  if (*options.writable && *options.sharing == Sharing::shared)
    return failure(ErrorCode::invalid_argument,
                   "writes to a reflink would not reach the file: it is opened writable with "
                   "sharing=private, or with protection=map or guard");
  Result<os::File> reflink = os::make_reflink(file);
  if (!reflink) reflink.error().message.insert(0, "protection=reflink: ");
  return reflink;
}

// A file below the folder.
GivenPath in_folder(const std::filesystem::path& folder, const std::string& shown_folder,
                    const std::filesystem::path& name) {
  const std::string slash = shown_folder.empty() || shown_folder.ends_with('/') ? "" : "/";
  return {folder / name, shown_folder + slash + shown_name(name), {}};
}

// Adds advice for a process that may not open `more` files.
void add_limit_hint(Error& error, std::size_t more) {
  if (error.os_error == EMFILE)
    error.message +=
        " with " + bytes::counted(more, "more file") + "; allow more open files (ulimit -n)";
}

// Lets the process open so many files, see docs/options.md.
void make_room(std::size_t descriptors, const OpenOptions& options) {
  if (os::make_room_for_descriptors(descriptors) && options.log)
    options.log("the soft limit of open files is raised for " +
                bytes::counted(descriptors, "more descriptor"));
}

// Errors call the file `name`.
Result<SourceFile> make_source(os::File file, std::string name, const OpenOptions& options) {
  const Generation opened = file.generation();
  TRY_ASSIGN(os::File used, protect(std::move(file), options));
  return SourceFile{std::move(used), {{}, opened, opened.size, 0}, std::move(name)};
}

Result<SourceFile> open_source(const GivenPath& from, const OpenOptions& options) {
  const bool is_written = *options.writable && *options.sharing == Sharing::shared;
  TRY_ASSIGN(os::File file, about_shown(os::File::open(from.path, is_written), from.shown));
  TRY_ASSIGN(SourceFile source,
             about_shown(make_source(std::move(file), from.shown, options), from.shown));
  source.info.path = from.path;
  return source;
}

std::string own_name(const ArrivingFile& remote) {
  return std::filesystem::path(remote.source()->name()).filename();
}

Result<SourceFile> remote_source(std::shared_ptr<ArrivingFile> remote, std::string name_beside) {
  TRY_ASSIGN(os::File file, ArrivingFile::open(remote));
  const std::string& name = remote->source()->name();
  const Generation opened = file.generation();
  return SourceFile{std::move(file),
                    {name, opened, opened.size, 0},
                    shown_name(name),
                    std::move(remote),
                    std::move(name_beside)};
}

// Places the files beside a remote one, which may be one of them itself.
Result<void> add_siblings(Sources& sources, const std::shared_ptr<ArrivingFile>& first,
                          std::span<const std::string> names) {
  const std::string first_name = own_name(*first);
  std::vector<std::shared_ptr<RangeSource>> siblings(names.size());
  std::vector<std::shared_ptr<ArrivingFile>> files(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == first_name) {
      files[i] = first;
      continue;
    }
    TRY_ASSIGN(siblings[i], first->source()->sibling(names[i]));
  }
  constexpr std::size_t threads = 16;  // which wait for answers
  TRY(parallel_for(names.size(), threads, [&](std::size_t i) -> Result<void> {
    if (files[i]) return {};
    TRY_ASSIGN(files[i], ArrivingFile::in_memory(std::move(siblings[i]), first->ends(), true));
    return {};
  }));
  for (std::size_t i = 0; i < names.size(); ++i) {
    TRY_ASSIGN(SourceFile source, remote_source(std::move(files[i]), names[i]));
    TRY(sources.add(std::move(source)));
  }
  return {};
}

// Errors name the file.
Result<void> add_source(Sources& sources, const GivenPath& from, const OpenOptions& options) {
  TRY_ASSIGN(SourceFile source, open_source(from, options));
  TRY(about_shown(sources.add(std::move(source)), from.shown));
  return {};
}

Error no_folder(const OpenOptions& options) {
  return {ErrorCode::invalid_argument,
          "is no folder, and the variant " + bytes::quote(options.variant) +
              " is chosen among the files of one: name the file that has it",
          Error::no_offset,
          {}};
}

// The file; or the member of it, if the path is FILE//MEMBER.
Result<void> add_file(Sources& sources, const GivenPath& from, const OpenOptions& options) {
  Result<void> added = add_source(sources, from, options);
  if (added || added.error().os_error != ENOTDIR) return added;
  std::optional<format::MemberPath> inside = format::member_path(from.path);
  if (!inside) return added;
  TRY_ASSIGN(SourceFile source, open_source({inside->file, from.shown, {}}, options));
  TRY_ASSIGN(
      source.member,
      about_shown(format::find_member(source.file, inside->member, options.limits), from.shown));
  source.member_name = std::move(inside->member);
  return sources.add(std::move(source));
}

Result<void> add_folder(GivenFiles& given, const GivenPath& folder, const OpenOptions& options) {
  TRY(about_shown(sets::check_no_update(folder.path), folder.shown));
  TRY_ASSIGN(sets::Selection chosen,
             about_shown(sets::select_files(folder.path, options.variant), folder.shown));
  make_room(chosen.files.size(), options);
  for (const std::string& file : chosen.files) {
    Result<void> added =
        add_source(given.sources, in_folder(folder.path, folder.shown, file), options);
    if (added) continue;
    add_limit_hint(added.error(), chosen.files.size() - 1);
    return added;
  }
  given.not_opened = std::move(chosen.not_opened);
  return {};
}

// A path without a file may be the name of a model; `missing` is the error if it is not.
Result<void> add_from_hub(GivenFiles& given, const GivenPath& name, const OpenOptions& options,
                          Error missing) {
  Result<std::optional<sets::HubSnapshot>> found = sets::find_in_hub_cache(name.as_given);
  if (!found) {
    missing.message += "; " + found.error().message;
    return tl::unexpected<Error>(std::move(missing));
  }
  if (!*found) return tl::unexpected<Error>(std::move(missing));
  given.hub = std::move(**found);
  const std::filesystem::path& folder = given.hub->folder;
  return add_folder(given, {folder, shown_name(folder), {}}, options);
}

// A file; or if it is a folder, all files of the checkpoint in it; or if there is none, those of
// the model of this name, of which `given.hub` says what it stands for.
Result<void> add_given(GivenFiles& given, const GivenPath& from, const OpenOptions& options) {
  if (sets::is_rank_metadata(from.path.filename().native()))
    return add_folder(
        given, {from.path.parent_path(), from.shown.substr(0, from.shown.rfind('/') + 1), {}},
        options);
  Result<void> added = add_file(given.sources, from, options);
  if (added && !options.variant.empty()) return about_shown(no_folder(options), from.shown);
  if (added) return added;
  if (added.error().os_error == EISDIR) return add_folder(given, from, options);
  if (added.error().os_error != ENOENT) return added;
  return add_from_hub(given, from, options, std::move(added.error()));
}

// Refuses what is done to a file or its mapping only.
Result<void> check_options_of_memory(const OpenOptions& options) {
  if (*options.writable)
    return failure(ErrorCode::invalid_argument, "is memory, which is never opened writable");
  if (*options.locked)
    return failure(ErrorCode::invalid_argument,
                   "is memory of the caller, who locks it, if anybody");
  if (!options.variant.empty()) return tl::unexpected<Error>(no_folder(options));
  if (*options.protection != Protection::map)
    return failure(ErrorCode::invalid_argument,
                   "is memory, which protection=" + std::string(to_string(*options.protection)) +
                       " cannot protect as it does a file");
  return {};
}

// See GivenFiles.
std::size_t count_leading(const GivenFiles& files) {
  if (files.paths.size() > 1) return 0;
  const std::size_t count = files.sources.size();
  const std::string first = files.sources.front().info.path.filename();
  return count == 1 || sets::is_distributed_metadata(first) ? count : 0;
}

}  // namespace

GivenPath given(const std::filesystem::path& path) {
  std::error_code unknown;  // the working directory is gone: then the path as it was given
  GivenPath named{std::filesystem::absolute(path, unknown), shown_name(path), path.native()};
  if (unknown) named.path = path;
  return named;
}

Result<GivenFiles> open_given(std::vector<GivenPath> paths, const OpenOptions& options) {
  GivenFiles files{.paths = std::move(paths)};
  if (files.paths.size() > 1)
    for (const GivenPath& path : files.paths)
      TRY(about_shown(sets::check_no_update(path.path.parent_path()), path.shown));
  make_room(files.paths.size(), options);
  for (const GivenPath& path : files.paths)
    TRY(files.paths.size() == 1 ? add_given(files, path, options)
                                : add_file(files.sources, path, options));
  files.leading = count_leading(files);
  return files;
}

Result<GivenFiles> open_given(int descriptor, const OpenOptions& options) {
  const std::string name = "descriptor " + std::to_string(descriptor);
  TRY_ASSIGN(os::File file, about_shown(os::File::from_descriptor(descriptor), name));
  TRY_ASSIGN(SourceFile source, about_shown(make_source(std::move(file), name, options), name));
  GivenFiles files;
  TRY(files.sources.add(std::move(source)));
  files.leading = 1;
  return files;
}

Result<GivenFiles> open_given(std::span<const std::byte> memory, std::shared_ptr<const void> owner,
                              const OpenOptions& options) {
  const std::string name = "memory";
  Result<os::File> file = os::File::in_memory(memory);
  TRY(about_shown(check_options_of_memory(options), name));
  if (!file) return about_shown(std::move(file.error()), name);
  const Generation generation = file->generation();
  GivenFiles files{.owner = std::move(owner), .leading = 1, .view_memory = ViewMemory::given};
  TRY(files.sources.add({std::move(*file), {{}, generation, generation.size, 0}, name}));
  return files;
}

Result<GivenFiles> open_given(std::shared_ptr<ArrivingFile> remote, ViewMemory view_memory) {
  const std::string name = remote->source()->name();
  if (sets::is_rank_metadata(std::filesystem::path(name).filename().native()))
    return failure(ErrorCode::unsupported,
                   "is the metadata of one rank; those of the others are found in a folder, which "
                   "a remote source does not list");
  GivenFiles files{
      .paths = {{name, shown_name(name), name}}, .leading = 1, .view_memory = view_memory};
  std::string own = own_name(*remote);
  TRY_ASSIGN(SourceFile source, remote_source(std::move(remote), std::move(own)));
  TRY(files.sources.add(std::move(source)));
  return files;
}

Result<void> add_beside(Sources& sources, const SourceFile& first,
                        std::span<const std::string> names, const std::string& why,
                        const OpenOptions& options) {
  constexpr std::size_t connected = 4;  // descriptors of a remote file: its copy and connections
  make_room(names.size() * (first.remote ? connected : 1), options);
  if (first.remote) {
    Result<void> added = add_siblings(sources, first.remote, names);
    if (added) return added;
    added.error().message += why;
    add_limit_hint(added.error(), names.size() - 1);
    return added;
  }
  // Copies, since `first` may be one of the sources.
  const std::filesystem::path folder = first.info.path.parent_path();
  TRY(about_shown(sets::check_no_update(folder), first.shown_name));
  const std::string shown = first.shown_name.substr(0, first.shown_name.rfind('/') + 1);
  for (const std::string& name : names) {
    Result<void> added = add_source(sources, in_folder(folder, shown, name), options);
    if (added) continue;
    Error& error = added.error();
    error.message += why;
    add_limit_hint(error, names.size() - 1);
    return added;
  }
  return {};
}

}  // namespace weightmap
