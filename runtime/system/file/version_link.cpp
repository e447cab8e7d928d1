#include "runtime/system/file/version_link.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"
#include "runtime/system/write/replace.hpp"

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> failed_to(const std::string& action, const std::error_code& failed) {
  return tl::unexpected<Error>(os_error(action, failed.value()));
}

Result<void> sync_file(const fs::path& path) {
  const UniqueFd opened(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); }));
  if (opened.get() < 0) return os_failure("open the file");
  if (::fsync(opened.get()) != 0) return os_failure("write the file to the disk");
  return {};
}

// Of a folder: the link that leads, or led, to it.
constexpr const char* attribute = "user.weightmap.link";

bool is_version(std::string_view text) noexcept {
  constexpr std::size_t digits = 16;
  const std::string_view rest = text.substr(std::min(digits, text.size()));
  return text.size() >= digits &&
         text.substr(0, digits).find_first_not_of("0123456789abcdef") == text.npos &&
         (rest.empty() || (rest.size() > 1 && rest[0] == '.' &&
                           rest.find_first_not_of("0123456789", 1) == rest.npos));
}

void note(const fs::path& folder, const fs::path& link) {
  const UniqueFd opened(uninterrupted(
      [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW); }));
  if (opened.get() >= 0) set_attribute(opened.get(), attribute, link);
}

}  // namespace

Result<VersionLink> VersionLink::at(const fs::path& link) {
  std::error_code failed;
  fs::path absolute = fs::absolute(link, failed).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // "llama/"
  if (failed || !absolute.has_filename())
    return failure(ErrorCode::invalid_argument, "cannot be the name of a link");
  const fs::file_type found = fs::symlink_status(absolute, failed).type();
  if (found != fs::file_type::not_found && found != fs::file_type::symlink)
    return failure(ErrorCode::invalid_argument,
                   "is there already, and is no symbolic link that could lead to another version");
  const fs::path folder = fs::weakly_canonical(absolute.parent_path(), failed);
  if (failed) return failed_to("look at its folder", failed);
  return VersionLink(folder / absolute.filename());
}

fs::path VersionLink::current() const {
  std::error_code failed;
  fs::path led_to = fs::canonical(path_, failed);
  return failed ? fs::path() : led_to;
}

fs::path VersionLink::folder_of(const std::string& version) const {
  return folder() / (path_.filename().native() + "@" + version);
}

std::vector<fs::path> VersionLink::versions() const {
  std::vector<fs::path> found;
  std::error_code stop;
  const std::string beginning = path_.filename().native() + "@";
  for (fs::directory_iterator entry(folder(), stop), end; !stop && entry != end;
       entry.increment(stop)) {
    std::error_code unknown;
    const std::string name = entry->path().filename();
    if (name.starts_with(beginning) && is_version(name.substr(beginning.size())) &&
        entry->symlink_status(unknown).type() == fs::file_type::directory)
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> VersionLink::known() const {
  std::vector<fs::path> found = versions();
  for (const fs::path& place : {folder(), current().parent_path()}) {
    std::error_code stop;
    for (fs::directory_iterator entry(place, stop), end; !stop && entry != end;
         entry.increment(stop))
      if (std::error_code unknown;
          entry->symlink_status(unknown).type() == fs::file_type::directory &&
          attribute_of(entry->path(), attribute) == path_.native())
        found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool VersionLink::is_of_versions() const {
  const fs::path now = current();
  const std::vector<fs::path> all = known();
  return now.empty() || std::find(all.begin(), all.end(), now) != all.end();
}

bool VersionLink::is_in_version(const fs::path& file) const {
  const std::string beginning = path_.filename().native() + "@";
  return std::any_of(file.begin(), file.end(), [&beginning](const fs::path& part) {
    return part.native().starts_with(beginning) &&
           is_version(std::string_view(part.native()).substr(beginning.size()));
  });
}

Result<void> VersionLink::lead_to(const fs::path& target) const {
  std::error_code failed;
  fs::path absolute = fs::absolute(target, failed).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // "v2/"
  const bool is_beside = absolute.parent_path() == folder();
  TRY_ASSIGN(const UniqueFd directory, open_directory(folder()));
  const std::string next = "." + path_.filename().native() + ".next";
  TRY(remove_name(directory.get(), next));  // of a process that was killed here
  const fs::path& text = is_beside ? absolute.filename() : absolute;
  if (::symlinkat(text.c_str(), directory.get(), next.c_str()) != 0)
    return os_failure("make the symbolic link");
  Result<void> renamed = rename_in(directory.get(), next, path_.filename());
  if (!renamed) {
    static_cast<void>(remove_name(directory.get(), next));
    return renamed;
  }
  note(absolute, path_);
  return sync_directory(directory.get());
}

Result<void> VersionLink::remove_others(const std::vector<fs::path>& kept) const {
  const fs::path now = current();
  for (const fs::path& version : versions()) {
    if (version == now || std::find(kept.begin(), kept.end(), version) != kept.end()) continue;
    std::error_code failed;
    fs::remove_all(version, failed);
    if (failed) return failed_to("remove " + version.filename().native(), failed);
  }
  return {};
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code stop;
  for (fs::recursive_directory_iterator entry(folder, stop), end; !stop && entry != end;
       entry.increment(stop))
    if (std::error_code unknown; entry->symlink_status(unknown).type() == fs::file_type::regular)
      files.push_back(entry->path());
  return files;
}

Result<void> sync_folder(const fs::path& folder) {
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const fs::file_type type = entry->symlink_status(failed).type();
    if (type == fs::file_type::directory) TRY(sync_folder(entry->path()));
    if (type == fs::file_type::regular) TRY(about_file(sync_file(entry->path()), entry->path()));
  }
  if (failed) return about_file(os_error("list the folder", failed.value()), folder);
  TRY_ASSIGN(const UniqueFd directory, about_file(open_directory(folder), folder));
  return about_file(sync_directory(directory.get()), folder);
}

}  // namespace weightmap::os
