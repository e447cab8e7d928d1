// Which files the processes of this machine have mapped, as /proc tells it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mmap/pages/smaps.hpp"
#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// The processes that there are, in the order of their numbers. `root` is where proc is looked for.
std::vector<std::int64_t> process_numbers(const std::filesystem::path& root = "/");

// How such a list shows a file: a page of it is mapped, and looked up in the list of this process.
// The device is not always the one that stat() tells. Fails with io if the system refuses.
Result<MappedArea> area_of(const os::File& file);

struct ProcessArea {
  MappedArea area;
  MappedMemory memory;
};

// The mappings of a process for which `wanted` is true, with their memory. Cheap for a process that
// has none: the system counts pages only for those that have. Empty for a process that ended
// meanwhile; nullopt if the system does not let us look.
std::optional<std::vector<ProcessArea>> areas_of_process(
    std::int64_t process, const std::function<bool(const MappedArea&)>& wanted,
    const std::filesystem::path& root = "/");

// The same of this process; without `counted` all memory is 0, and nothing has to be counted.
std::optional<std::vector<ProcessArea>> areas_of_this_process(
    const std::function<bool(const MappedArea&)>& wanted, bool counted = true);

// Its words with blanks between, or, of a process that shows none, its short name. At most 4 KiB;
// empty if it ended meanwhile. May hold any bytes: whoever runs a program chooses them.
std::string command_of_process(std::int64_t process, const std::filesystem::path& root = "/");

}  // namespace weightmap::mmap
