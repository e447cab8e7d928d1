#include "mmap/pages/process_maps.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "mmap/pages/file_window.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_command = 4096;

fs::path folder_of(std::int64_t process, const fs::path& root) {
  return root / "proc" / std::to_string(process);
}

bool is_forbidden(int error_number) noexcept {
  return error_number == EACCES || error_number == EPERM;
}

std::string head_of(const fs::path& path) {
  std::string text(longest_command, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Returns nullopt if the system denies access.
std::optional<std::vector<ProcessArea>> read_areas(
    const fs::path& path, const std::function<bool(const MappedArea&)>& wanted) {
  errno = 0;
  std::ifstream text(path);
  if (!text && is_forbidden(errno)) return std::nullopt;
  std::vector<ProcessArea> areas;
  for (SmapsReader reader(text); reader.next();)
    if (wanted(reader.area())) areas.push_back({reader.area(), reader.memory()});
  return areas;
}

}  // namespace

std::vector<std::int64_t> process_numbers(const fs::path& root) {
  std::vector<std::int64_t> numbers;
  std::error_code stop;
  for (fs::directory_iterator entry(root / "proc", stop), end; !stop && entry != end;
       entry.increment(stop))
    if (const auto number = bytes::number(entry->path().filename().native());
        number && *number > 0 && std::in_range<std::int64_t>(*number))
      numbers.push_back(static_cast<std::int64_t>(*number));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<MappedArea> area_of(const os::File& file) {
  const ByteRange first{0, os::page_bytes()};
  const FileWindow window(file, {&first, 1}, os::page_bytes());
  if (window.bytes().empty()) return os::os_failure("map the file");
  const auto address = reinterpret_cast<std::uintptr_t>(window.bytes().data());
  std::ifstream text("/proc/self/maps");
  std::optional<MappedArea> found;
  for (SmapsReader reader(text); !found && reader.next();)
    if (reader.area().begin <= address && address < reader.area().end) found = reader.area();
  if (found) return std::move(*found);
  return failure(ErrorCode::io, "cannot find the file in /proc/self/maps");
}

std::optional<std::vector<ProcessArea>> areas_of_process(
    std::int64_t process, const std::function<bool(const MappedArea&)>& wanted,
    const fs::path& root) {
  const fs::path folder = folder_of(process, root);
  std::optional<std::vector<ProcessArea>> areas = read_areas(folder / "maps", wanted);
  if (!areas || areas->empty()) return areas;
  return read_areas(folder / "smaps", wanted);
}

std::optional<std::vector<ProcessArea>> areas_of_this_process(
    const std::function<bool(const MappedArea&)>& wanted, bool counted) {
  return read_areas(counted ? "/proc/self/smaps" : "/proc/self/maps", wanted);
}

std::string command_of_process(std::int64_t process, const fs::path& root) {
  const fs::path folder = folder_of(process, root);
  std::string words = head_of(folder / "cmdline");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  if (!words.empty()) return words;
  std::string name = head_of(folder / "comm");
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

std::optional<std::uint32_t> user_of_process(std::int64_t process, const fs::path& root) {
  struct stat status {};
  if (::stat(folder_of(process, root).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace weightmap::mmap
