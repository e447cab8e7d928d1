// Lists the files that processes of this machine have mapped, from /proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mmap/pages/smaps.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Returns the ids of all processes, sorted. `root` contains proc.
std::vector<std::int64_t> process_numbers(const std::filesystem::path& root = "/");

// Returns a file's entry in such a list, by mapping a page of it and finding it in this process's
// list. The device may differ from stat()'s. Fails with io if the system refuses.
Result<MappedArea> area_of(const os::File& file);

struct ProcessArea {
  MappedArea area;
  MappedMemory memory;
};

// Returns the mappings of a process for which `wanted` is true, with their memory. Cheap for a
// process without any: the system counts pages only for the others. Empty for a process that ended
// meanwhile; nullopt if the system denies access.
std::optional<std::vector<ProcessArea>> areas_of_process(
    std::int64_t process, const std::function<bool(const MappedArea&)>& wanted,
    const std::filesystem::path& root = "/");

// Does the same for this process; without `counted` all memory is 0, and nothing is counted.
std::optional<std::vector<ProcessArea>> areas_of_this_process(
    const std::function<bool(const MappedArea&)>& wanted, bool counted = true);

// Returns its arguments joined by spaces or, for a process without any, its short name. At most 4
// KiB; empty if it ended meanwhile. May hold any bytes, since the process's user chooses them.
std::string command_of_process(std::int64_t process, const std::filesystem::path& root = "/");

// Returns whose the process is; root for one that guards its memory. nullopt if it ended meanwhile.
std::optional<std::uint32_t> user_of_process(std::int64_t process,
                                             const std::filesystem::path& root = "/");

}  // namespace weightmap::mmap
