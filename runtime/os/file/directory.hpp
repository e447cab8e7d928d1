// Names in a directory that is open.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// The names in it that begin so, sorted. Fails with io if it cannot be read.
Result<std::vector<std::string>> names_in(int directory, std::string_view beginning);

// Whether the name still means the open file: whoever had it may have removed or replaced it.
bool has_name(int directory, const std::string& name, int descriptor) noexcept;

// Locks the whole file against other open files of it, until the last descriptor of this one is
// closed (F_OFD_SETLK). False, with errno, if somebody else has it locked or it cannot be.
bool lock_open_file(int descriptor) noexcept;

// Removes the file unless somebody has it locked as lock_open_file() does; whether it did. Whoever
// waits for such a lock has to look afterwards whether the file still has a name.
bool remove_unlocked(int directory, const std::string& name) noexcept;

// Writes to the disk which names it has.
Result<void> sync_directory(int directory);

}  // namespace weightmap::os
