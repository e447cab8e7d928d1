#include "tools/hold/keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {

std::vector<HeldFile>::iterator Keeper::find(const std::filesystem::path& path) {
  return std::find_if(files_.begin(), files_.end(),
                      [&path](const HeldFile& file) { return file.path() == path; });
}

Result<Json> Keeper::hold(const std::filesystem::path& path) {
  if (const auto held = find(path); held != files_.end()) return held->describe();
  TRY_ASSIGN(HeldFile file, HeldFile::open(path, wants_lock_, say_));
  files_.push_back(std::move(file));
  ++changes_;
  return files_.back().describe();
}

Result<void> Keeper::release(const std::filesystem::path& path) {
  const auto held = find(path);
  if (held == files_.end())
    return failure(ErrorCode::invalid_argument, printable(path.native()) + " is not held");
  files_.erase(held);
  say_(printable(path.native()) + ": released");
  return {};
}

std::vector<std::filesystem::path> Keeper::paths() const {
  std::vector<std::filesystem::path> paths;
  for (const HeldFile& file : files_) paths.push_back(file.path());
  return paths;
}

bool Keeper::is_warming() const noexcept {
  return std::any_of(files_.begin(), files_.end(),
                     [](const HeldFile& file) { return file.is_warming(); });
}

bool Keeper::is_reloading() const noexcept {
  return std::any_of(files_.begin(), files_.end(),
                     [](const HeldFile& file) { return file.is_reloading(); });
}

void Keeper::advance() {
  for (HeldFile& file : files_) file.advance();
}

void Keeper::look(bool counts) {
  for (HeldFile& file : files_) file.look(counts);
}

Json Keeper::describe() const {
  Json files = Json::array();
  std::uint64_t file_bytes = 0;
  std::uint64_t resident_bytes = 0;
  for (const HeldFile& file : files_) {
    files.push_back(file.describe());
    file_bytes += files.back()["file_bytes"].get<std::uint64_t>();
    if (const Json& resident = files.back()["resident_bytes"]; resident.is_number())
      resident_bytes += resident.get<std::uint64_t>();
  }
  return {{"pid", ::getpid()},
          {"files", files},
          {"file_bytes", file_bytes},
          {"resident_bytes", resident_bytes}};
}

std::string Keeper::summary() const {
  std::uint64_t bytes = 0;
  for (const HeldFile& file : files_) bytes += file.file_bytes();
  return count(files_.size(), "file") + ", " + human_bytes(bytes);
}

}  // namespace weightmap::cli::hold
