#include "tools/snapshot/used_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tools/run/files_in_use.hpp"
#include "tools/run/start_plan.hpp"
#include "tools/support/text.hpp"
#include "weightmap/checkpoint_info.hpp"

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
    // The command may make files in a folder that it has open, as in its runtime directory.
    if (closed || !start::has_own_content(target.native()) || fs::is_directory(target, closed))
      continue;
    if (is_open_for_reading(folder / "fdinfo" / at->path().filename()))
      paths.read.insert(target.native());
    else if (const Result<Generation> file = generation_at(target))
      paths.written.insert({file->device, file->inode});
  }
}

UsedFile state_of(const std::string& path, const Generation& file) {
  return {path, file.size, file.mtime_ns, file.ctime_ns};
}

// Returns the "x/name.py" of an "x/__pycache__/name.cpython-311.pyc" that has one; other paths as
// they are.
std::string compared_for(const fs::path& path) {
  if (path.extension() != ".pyc" || path.parent_path().filename() != "__pycache__") return path;
  const std::string name = path.filename().native();
  const fs::path source =
      path.parent_path().parent_path() / (name.substr(0, name.find('.')) + ".py");
  std::error_code error;
  return fs::exists(source, error) ? source : path;
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
    const Result<Generation> file = generation_at(path);
    if (!file)
      return failure(ErrorCode::io, printable(path) + " was replaced while the command started");
    files.push_back(state_of(path, *file));
  }
  std::set<std::string> read;
  for (const std::string& path : paths.read) read.insert(compared_for(path));
  for (const std::string& path : read) {
    const Result<Generation> file = generation_at(path);
    if (!file || paths.mapped.contains(path) || paths.written.contains({file->device, file->inode}))
      continue;
    if (std::max(file->mtime_ns, file->ctime_ns) >= began_ns)
      return failure(ErrorCode::io, printable(path) + " was changed while the command started");
    files.push_back(state_of(path, *file));
  }
  return files;
}

std::string first_change(const std::vector<UsedFile>& files) {
  for (const UsedFile& then : files) {
    const Result<Generation> now = generation_at(then.path);
    if (!now) return printable(then.path) + " is gone";
    if (now->size != then.size)
      return printable(then.path) + " has " + std::to_string(now->size) + " bytes, and had " +
             std::to_string(then.size);
    if (state_of(then.path, *now) != then)
      return printable(then.path) + " was written to or replaced";
  }
  return {};
}

}  // namespace weightmap::cli::snapshot
