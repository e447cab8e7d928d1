#include "runtime/system/memory/memory_limit.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "runtime/base/bytes/number.hpp"
#include "runtime/system/process/control_groups.hpp"

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

// Returns the number in a file; nullopt for "max" and for a missing file.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? bytes::number(word) : std::nullopt;
}

// Returns the number behind `key` in a file of "key number" lines.
std::optional<std::uint64_t> read_field(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key) return bytes::number(value);
  }
  return std::nullopt;
}

// The places and names of the files of one version of cgroups.
struct CgroupFiles {
  const char* limits[2];  // beyond them processes are killed, or slowed down and reclaimed
  const char* usage;
  const char* reclaimable[2];  // in memory.stat: page cache
};
constexpr CgroupFiles version_2 = {
    {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};
constexpr CgroupFiles version_1 = {{"memory.limit_in_bytes", nullptr},
                                   "memory.usage_in_bytes",
                                   {"total_inactive_file", "total_active_file"}};

void take_least(MemoryLimit& limit, std::uint64_t available, std::string reason) {
  if (available < limit.available) limit = {available, std::move(reason)};
}

void consider_group(MemoryLimit& limit, const fs::path& folder, const CgroupFiles& files,
                    const std::string& name) {
  const auto used = read_number(folder / files.usage);
  if (!used) return;
  std::uint64_t cache = 0;
  for (const char* field : files.reclaimable)
    cache += read_field(folder / "memory.stat", field).value_or(0);
  const std::uint64_t kept = *used > cache ? *used - cache : 0;
  for (const char* file : files.limits) {
    const auto most = file ? read_number(folder / file) : std::nullopt;
    if (most) take_least(limit, *most > kept ? *most - kept : 0, std::string(file) + " of " + name);
  }
}

// "some avg10=1.50 avg60=0.00 avg300=0.00 total=0" is the first line.
double waiting_in(const fs::path& path) {
  std::ifstream file(path);
  std::string some, average;
  constexpr std::string_view key = "avg10=";
  if (!(file >> some >> average) || some != "some" || !average.starts_with(key)) return 0;
  double percent = 0;
  const char* const end = average.data() + average.size();
  std::from_chars(average.data() + key.size(), end, percent);
  return percent;
}

}  // namespace

double memory_waiting(const fs::path& root) {
  double most = waiting_in(root / "proc/pressure/memory");
  for (const ControlGroup& group : control_groups("memory", root)) {
    if (!group.is_version_2) continue;
    most = std::max(most, waiting_in(group.folder / "memory.pressure"));
  }
  return most;
}

MemoryLimit memory_limit(const fs::path& root) {
  MemoryLimit limit;
  if (const auto kib = read_field(root / "proc/meminfo", "MemAvailable:"))
    take_least(limit, *kib * 1024, "MemAvailable");
  for (const ControlGroup& group : control_groups("memory", root))
    consider_group(limit, group.folder, group.is_version_2 ? version_2 : version_1, group.name);
  return limit;
}

}  // namespace weightmap::os
