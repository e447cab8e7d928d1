// A lock on a name, whether or not there is something of that name.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/system/file/file_lock.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// It is on the file ".NAME.weightmap-lock" beside the name, which its holder removes, and ends with
// the process; a forked child does not keep it.
class NameLock {
 public:
  // Never waits: returns nullopt if another has it.
  static Result<std::optional<NameLock>> take(const std::filesystem::path& path);
  // Removes the file of one that a process which was killed has left.
  static void remove_abandoned(const std::filesystem::path& path) noexcept;
  NameLock(NameLock&&) noexcept = default;
  ~NameLock();

 private:
  NameLock() = default;
  std::string name_;
  UniqueFd folder_;
  UniqueFd file_;
  std::unique_ptr<NotShared> not_shared_;  // destroyed before the file is closed
};

}  // namespace weightmap::os
