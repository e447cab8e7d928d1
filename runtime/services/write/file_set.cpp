#include "runtime/services/write/file_set.hpp"

#include <system_error>

#include "runtime/base/try.hpp"

namespace weightmap {

Result<void> FileSet::add(std::filesystem::path path, std::uint64_t bytes) {
  TRY_ASSIGN(ContentFile file, ContentFile::create(std::move(path), bytes, options_, written_));
  files_.push_back(std::move(file));
  return {};
}

Result<void> FileSet::commit() {
  std::vector<std::filesystem::path> made;
  for (ContentFile& file : files_) {
    std::error_code ignored;
    const bool is_free = !std::filesystem::exists(symlink_status(file.path(), ignored));
    // A file with its name but a failed sync is removed, too, unless it is the only one: see
    // NewFile.
    if (is_free && files_.size() > 1) made.push_back(file.path());
    Result<void> ok = file.commit();
    if (ok) continue;
    for (const std::filesystem::path& path : made) std::filesystem::remove(path, ignored);
    return ok;
  }
  written_.finish();
  return {};
}

}  // namespace weightmap
