#include "tools/snapshot/used_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "tools/run/files_in_use.hpp"
#include "tools/run/start_plan.hpp"
#include "tools/support/text.hpp"
#include "weightmap/generation.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// The line "flags:	02100001" of /proc/PID/fdinfo/N is octal (proc(5)).
bool is_open_for_reading(const fs::path& info) {
  std::ifstream file(info);
  std::string name;
  for (std::string value; file >> name >> value;)
    if (name == "flags:") return (std::stoul(value, nullptr, 8) & O_ACCMODE) == O_RDONLY;
  return false;
}

void add_open_files(pid_t process, UsedPaths& paths) {
  const fs::path folder = "/proc/" + std::to_string(process);
  std::error_code error;
  for (fs::directory_iterator at(folder / "fd", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(at->path(), closed);
    if (closed || !start::is_plannable(target.native())) continue;
    const bool is_read = is_open_for_reading(folder / "fdinfo" / at->path().filename());
    (is_read ? paths.read : paths.written).insert(target.native());
  }
}

std::optional<UsedFile> state_of(const std::string& path) {
  const Result<Generation> now = generation_at(path);
  if (!now) return std::nullopt;
  return UsedFile{path, now->size, now->mtime_ns, now->ctime_ns};
}

// Returns the "x/name.py" of an "x/__pycache__/name.cpython-311.pyc"; empty for other paths.
std::string source_of(const fs::path& bytecode) {
  if (bytecode.extension() != ".pyc" || bytecode.parent_path().filename() != "__pycache__")
    return {};
  const std::string name = bytecode.filename().native();
  return bytecode.parent_path().parent_path() / (name.substr(0, name.find('.')) + ".py");
}

}  // namespace

UsedPaths paths_in_use(const start::ProcessTree& processes) {
  UsedPaths paths;
  for (const pid_t process : processes.members()) {
    for (const start::MappedPart& part : start::mapped_parts(process))
      paths.mapped.insert(part.path);
    add_open_files(process, paths);
  }
  return paths;
}

Result<std::vector<UsedFile>> states_of(const UsedPaths& paths, std::int64_t began_ns) {
  std::vector<UsedFile> files;
  for (const std::string& path : paths.mapped) {
    std::optional<UsedFile> file = state_of(path);
    if (!file)
      return failure(ErrorCode::io, printable(path) + " was replaced while the command started");
    files.push_back(std::move(*file));
  }
  std::set<std::string> read = paths.read;
  for (const std::string& path : paths.read)
    if (std::string source = source_of(path); !source.empty()) read.insert(std::move(source));
  for (const std::string& path : read) {
    if (paths.mapped.contains(path) || paths.written.contains(path)) continue;
    std::optional<UsedFile> file = state_of(path);
    if (file && std::max(file->mtime_ns, file->ctime_ns) >= began_ns)
      return failure(ErrorCode::io, printable(path) + " was changed while the command started");
    if (file) files.push_back(std::move(*file));
  }
  return files;
}

std::string first_change(const std::vector<UsedFile>& files) {
  for (const UsedFile& then : files) {
    const std::optional<UsedFile> now = state_of(then.path);
    if (!now) return printable(then.path) + " is gone";
    if (now->size != then.size)
      return printable(then.path) + " has " + std::to_string(now->size) + " bytes, and had " +
             std::to_string(then.size);
    if (*now != then) return printable(then.path) + " was written to or replaced";
  }
  return {};
}

}  // namespace weightmap::cli::snapshot
