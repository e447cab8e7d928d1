#include "tools/snapshot/snapshot_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/run/plan_store.hpp"
#include "tools/snapshot/image_files.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr const char* manifest_name = "manifest.json";
constexpr const char* plan_name = "plan.json";

Result<void> make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return failure(ErrorCode::io, "cannot make the folder " + printable(path.native()) + ": " +
                                    std::strerror(errno));
}

Result<void> expect_own_folder(const fs::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0)
    return about_file(path, {ErrorCode::io, std::strerror(errno), Error::no_offset, {}, errno});
  if (Result<void> own = expect_own(folder.get()); !own) return about_file(path, own.error());
  return {};
}

Result<std::string> own_text(const fs::path& path, std::uint64_t most) {
  TRY_ASSIGN(const os::File file, os::File::open_foreign(path));
  TRY(expect_own(file.descriptor()));
  if (file.size() > most)
    return failure(ErrorCode::limit_exceeded, "has " + std::to_string(file.size()) +
                                                  " bytes, at most " + std::to_string(most) +
                                                  " are read");
  std::string text(file.size(), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool is_key(const std::string& name) {
  return name.size() == 36 && name.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

}  // namespace

Result<SnapshotFolder> SnapshotFolder::open(const fs::path& path, bool makes) {
  std::error_code error;
  SnapshotFolder folder(fs::absolute(path, error).lexically_normal());
  if (makes) {
    TRY(make_folder(folder.path_));
  }
  TRY(expect_own_folder(folder.path_));
  if (makes) {
    TRY(make_folder(folder.meeting_point()));
  }
  return folder;
}

std::vector<std::string> SnapshotFolder::keys() const {
  std::vector<std::string> keys;
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error))
    if (is_key(at->path().filename().native())) keys.push_back(at->path().filename().native());
  std::sort(keys.begin(), keys.end());
  return keys;
}

Result<Manifest> SnapshotFolder::manifest(const std::string& key) const {
  const fs::path path = path_ / key / manifest_name;
  std::error_code error;
  if (!fs::exists(path, error)) return failure(ErrorCode::not_found, "there is no snapshot");
  TRY(expect_own_folder(path_ / key));
  TRY(expect_own_folder(image_of(key)));
  const Result<std::string> text = own_text(path, max_manifest_bytes);
  if (!text) return about_file(path, text.error());
  Result<Manifest> manifest = parse_manifest(*text);
  if (!manifest) return about_file(path, manifest.error());
  return manifest;
}

start::StartPlan SnapshotFolder::plan(const std::string& key) const {
  Result<start::StartPlan> plan = start::load_plan(path_ / key / plan_name);
  return plan ? std::move(*plan) : start::StartPlan{};
}

fs::path SnapshotFolder::unfinished(const std::string& key) const { return path_ / (key + ".new"); }

Result<SnapshotFolder::Unfinished> SnapshotFolder::begin(const std::string& key) const {
  const fs::path lock_path = path_ / (key + ".lock");
  Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return about_file(lock_path, {ErrorCode::io, std::strerror(errno)});
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return failure(ErrorCode::cancelled, "another start is making it");
  discard(key);
  TRY(make_folder(unfinished(key)));
  const fs::path image = unfinished(key) / "image";
  TRY(make_folder(image));
  return Unfinished{image, std::move(lock)};
}

Descriptor SnapshotFolder::lock_for_restore(const std::string& key) const {
  Descriptor image(::open(image_of(key).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (image.get() >= 0 && ::flock(image.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return image;
}

Result<void> SnapshotFolder::commit(const Manifest& manifest, const start::StartPlan& plan) const {
  const fs::path made = unfinished(manifest.key), place = path_ / manifest.key;
  TRY(replace_file(made / plan_name, to_text(start::describe(plan)) + "\n", 0600));
  TRY(replace_file(made / manifest_name, to_text(describe(manifest)) + "\n", 0600));
  std::error_code error;
  fs::remove_all(place, error);
  fs::rename(made, place, error);
  if (error) return failure(ErrorCode::io, printable(place.native()) + ": " + error.message());
  return {};
}

void SnapshotFolder::discard(const std::string& key) const {
  std::error_code error;
  fs::remove_all(unfinished(key), error);
}

void SnapshotFolder::remove(const std::string& key) const {
  discard(key);
  std::error_code error;
  fs::remove_all(path_ / key, error);
  fs::remove(path_ / (key + ".lock"), error);
}

}  // namespace weightmap::cli::snapshot
