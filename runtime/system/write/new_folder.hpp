// A folder that comes into being: it appears under its name only once it is complete.
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/system/file/name_lock.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Until commit() it is ".NAME.weightmap-new" beside its name, so within the same file system. What
// a process that was killed has left of it is removed by the next one.
class NewFolder {
 public:
  // Returns nullopt if another process makes it now. Fails with invalid_argument if the name is
  // taken, with io if the system refuses. `path` may end in a slash.
  static Result<std::optional<NewFolder>> begin(const std::filesystem::path& path);
  // The same, and fails with io if another process makes it now.
  static Result<NewFolder> create(const std::filesystem::path& path);
  NewFolder(NewFolder&& other) noexcept;
  ~NewFolder();  // removes what was not committed

  // Where it is until commit(), to be filled.
  const std::filesystem::path& filled() const noexcept { return filled_; }
  // Gives it the owner, the group and the permissions of another folder, as take_permissions() does
  // (replace.hpp).
  Result<void> take_permissions_of(const std::filesystem::path& other) const;
  // Gives it its name; with `durable` once all of it is on the disk.
  Result<void> commit(bool durable);

 private:
  NewFolder() = default;
  std::filesystem::path path_;
  std::filesystem::path filled_;
  std::optional<NameLock> lock_;  // absent once it is committed
};

}  // namespace weightmap::os
