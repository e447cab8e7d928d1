#include "tools/run/files_in_use.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

// Parses "7f..-7f.. r-xp OFFSET DEV INODE   PATH".
std::optional<MappedPart> parse_line(const std::string& line) {
  MappedPart part;
  int path_at = 0;
  unsigned long long begin = 0, end = 0, offset = 0;
  if (std::sscanf(line.c_str(), "%llx-%llx %*4s %llx %*s %*s %n", &begin, &end, &offset,
                  &path_at) != 3 ||
      path_at == 0)
    return std::nullopt;
  part = {begin, end, offset, line.substr(static_cast<std::size_t>(path_at))};
  if (!is_plannable(part.path)) return std::nullopt;
  return part;
}

}  // namespace

std::vector<MappedPart> mapped_parts(pid_t process) {
  std::vector<MappedPart> parts;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (std::optional<MappedPart> part = parse_line(line)) parts.push_back(std::move(*part));
  return parts;
}

std::vector<std::string> open_files(pid_t process) {
  std::vector<std::string> paths;
  std::error_code error;
  const fs::path folder = "/proc/" + std::to_string(process) + "/fd";
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(at->path(), closed);
    if (!closed && is_plannable(target.native())) paths.push_back(target.native());
  }
  return paths;
}

}  // namespace weightmap::cli::start
