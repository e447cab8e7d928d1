#include "runtime/services/delta/files_beside.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap::delta {
namespace {

namespace fs = std::filesystem;

// Sums of the old weights are none of the new ones.
bool is_of_every_version(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename();
  std::error_code unknown;
  return name != sets::sums_name && name != sets::signature_name &&
         entry.is_regular_file(unknown) &&
         sets::lies_beside_weights(name, entry.file_size(unknown));
}

}  // namespace

Result<FilesBeside> FilesBeside::list(const fs::path& folder) {
  FilesBeside found;
  found.folder_ = folder;
  TRY_ASSIGN(const Generation of_folder, generation_at(folder));
  found.device_ = of_folder.device;
  found.inode_ = of_folder.inode;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (!is_of_every_version(*entry)) continue;
    TRY_ASSIGN(const Generation generation, generation_at(entry->path()));
    found.files_.push_back({entry->path().filename(), generation});
  }
  if (failed) return about_file(os::os_error("list the folder", failed.value()), folder);
  std::ranges::sort(found.files_, {}, &File::name);
  return found;
}

Result<void> FilesBeside::copy_to(const fs::path& folder) const {
  for (const File& file : files_) {
    std::error_code failed;
    fs::copy_file(folder_ / file.name, folder / file.name, failed);
    if (failed && failed != std::errc::file_exists)
      return about_file(os::os_error("copy it", failed.value()), folder_ / file.name);
  }
  return {};
}

Result<void> FilesBeside::check_unchanged() const {
  TRY_ASSIGN(const FilesBeside now, list(folder_));
  if (now.device_ != device_ || now.inode_ != inode_)
    return about_file(Error{ErrorCode::io, "was replaced by another folder meanwhile"}, folder_);
  const auto differs = std::ranges::mismatch(files_, now.files_);
  if (differs.in1 == files_.end() && differs.in2 == now.files_.end()) return {};
  const std::string& name = differs.in1 != files_.end() ? differs.in1->name : differs.in2->name;
  return about_file(Error{ErrorCode::io, "was changed, added or removed meanwhile"},
                    folder_ / name);
}

}  // namespace weightmap::delta
