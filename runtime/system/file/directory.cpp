#include "runtime/system/file/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::os {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

// Opens the directory again for reading and syncing, which O_PATH does not allow.
Result<UniqueFd> open_again(int directory) {
  UniqueFd opened(
      uninterrupted([&] { return ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) return os_failure("open the directory");
  return opened;
}

}  // namespace

Result<std::filesystem::path> resolved_name(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path absolute = fs::absolute(path, failed);
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  const fs::path name = absolute.filename();
  if (failed || !absolute.has_filename())
    return failure(ErrorCode::invalid_argument, "cannot be the name of a folder");
  const bool is_dots = name == "." || name == "..";
  const fs::path folder = fs::canonical(is_dots ? absolute : absolute.parent_path(), failed);
  if (failed) return tl::unexpected<Error>(os_error("look at its folder", failed.value()));
  return is_dots ? folder : folder / name;
}

Result<UniqueFd> open_directory(const std::filesystem::path& path) {
  UniqueFd opened(
      uninterrupted([&] { return ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.get() < 0) return os_failure("open the directory");
  return opened;
}

Result<UniqueFd> open_or_create(int directory, const std::string& name) {
  UniqueFd opened(uninterrupted([&] {
    return ::openat(directory, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                    0666);
  }));
  if (opened.get() < 0) return os_failure("open or create " + bytes::quote(name));
  return opened;
}

Result<void> remove_name(int directory, const std::string& name) {
  if (::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return os_failure("remove " + bytes::quote(name));
}

Result<std::vector<std::string>> names_in(int directory, std::string_view beginning) {
  TRY_ASSIGN(UniqueFd opened, open_again(directory));
  const std::unique_ptr<DIR, CloseDirectory> listing(::fdopendir(opened.get()));
  if (!listing) return os_failure("list the directory");
  opened.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listing.get()))
    if (std::string_view(entry->d_name).starts_with(beginning)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

bool has_name(int directory, const std::string& name, int descriptor) noexcept {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 &&
         ::fstatat(directory, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool has_other_names(int descriptor) noexcept {
  struct stat opened {};
  return ::fstat(descriptor, &opened) == 0 && opened.st_nlink > 1;
}

bool lock_open_file(int descriptor) noexcept {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_OFD_SETLK, &whole) == 0;  // also excludes other threads
}

bool remove_unlocked(int directory, const std::string& name) noexcept {
  const UniqueFd file(
      ::openat(directory, name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 || !lock_open_file(file.get())) return false;
  return has_name(directory, name, file.get()) && ::unlinkat(directory, name.c_str(), 0) == 0;
}

Result<void> sync_directory(int directory) {
  TRY_ASSIGN(const UniqueFd opened, open_again(directory));
  if (uninterrupted([&] { return ::fsync(opened.get()); }) == 0) return {};
  return os_failure("write the directory to the disk");
}

}  // namespace weightmap::os
