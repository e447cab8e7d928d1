#include "runtime/system/file/name_lock.hpp"

#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/file/directory.hpp"

namespace weightmap::os {

namespace {

std::string lock_of(const std::filesystem::path& path) {
  return "." + path.filename().native() + ".weightmap-lock";
}

}  // namespace

void NameLock::remove_abandoned(const std::filesystem::path& path) noexcept {
  if (const Result<UniqueFd> folder = open_directory(path.parent_path()))
    remove_unlocked(folder->get(), lock_of(path));
}

Result<std::optional<NameLock>> NameLock::take(const std::filesystem::path& path) {
  NameLock lock;
  lock.name_ = lock_of(path);
  TRY_ASSIGN(lock.folder_, open_directory(path.parent_path()));
  for (;;) {
    TRY_ASSIGN(UniqueFd file, open_or_create(lock.folder_.get(), lock.name_));
    if (!lock_open_file(file.get())) return std::nullopt;
    if (!has_name(lock.folder_.get(), lock.name_, file.get())) continue;
    lock.file_ = std::move(file);  // of which the destructor removes the name
    lock.not_shared_ = std::make_unique<NotShared>(lock.file_.get());
    return lock;
  }
}

NameLock::~NameLock() {
  if (file_.get() >= 0) static_cast<void>(remove_name(folder_.get(), name_));
}

}  // namespace weightmap::os
