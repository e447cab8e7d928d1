// Operations on names in an open directory.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Returns the absolute path of a name that need not exist, with the folder that it is in as the
// system finds it: links and ".." are resolved, but for the name itself. A slash behind it is taken
// off. Fails with invalid_argument if it is no name, with io if its folder is not there.
Result<std::filesystem::path> resolved_name(const std::filesystem::path& path);

// Opens it for the other functions. Fails with io if there is none.
Result<UniqueFd> open_directory(const std::filesystem::path& path);

// Opens a file for reading and writing, or creates it with permissions 0666 less the umask. Follows
// no link. Fails with io if the system refuses.
Result<UniqueFd> open_or_create(int directory, const std::string& name);

// Removes the name if it exists. Fails with io if the system refuses.
Result<void> remove_name(int directory, const std::string& name);

// Returns the names with this beginning, sorted. Fails with io if the directory cannot be read.
Result<std::vector<std::string>> names_in(int directory, std::string_view beginning);

// True if the name still refers to the open file, which may have been removed or replaced.
bool has_name(int directory, const std::string& name, int descriptor) noexcept;

// True if the open file has more names than one, as hard links give it.
bool has_other_names(int descriptor) noexcept;

// Locks the whole file against other open files of it, until the last descriptor of this one is
// closed (F_OFD_SETLK). Returns false, with errno, if that fails.
bool lock_open_file(int descriptor) noexcept;

// Removes the file unless it is locked by lock_open_file(); returns whether it did. After acquiring
// such a lock, a process must check whether the file still has its name.
bool remove_unlocked(int directory, const std::string& name) noexcept;

// Syncs the directory's entries to the disk.
Result<void> sync_directory(int directory);

}  // namespace weightmap::os
