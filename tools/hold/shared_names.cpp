#include "tools/hold/shared_names.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "tools/hold/system_failure.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

namespace fs = std::filesystem;

const fs::path shared_memory = "/dev/shm";
const std::string new_prefix = "weightmap-hold-new.";

// What is there under this name, if it is a regular file of this user.
std::optional<struct stat> own_file(const fs::path& path) {
  struct stat found {};
  const bool is_own =
      ::lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == ::geteuid();
  return is_own ? std::optional(found) : std::nullopt;
}

bool is_one_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::vector<std::string> SharedNames::versions() const {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(shared_memory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::string name = entry->path().filename();
    if (name.starts_with(file_ + "@") && name.ends_with("." + source_))
      names.push_back(std::move(name));
  }
  return names;
}

Result<SharedNames> SharedNames::at(std::string name, std::string file, std::string source) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    return failure(ErrorCode::invalid_argument,
                   "\"" + printable(name) +
                       "\" cannot be the name of a file in /dev/shm; --name "
                       "gives it another one");
  SharedNames names(std::move(name), std::move(file), std::move(source));
  struct stat found {};
  if (::lstat(names.path().c_str(), &found) == 0 && names.published().empty())
    return failure(ErrorCode::invalid_argument, "\"" + printable(names.path().native()) +
                                                    "\" is there already, and is no copy of "
                                                    "this URL; remove it first");
  return names;
}

fs::path SharedNames::path() const { return shared_memory / name_; }

std::string SharedNames::published() const {
  const std::optional<struct stat> named = own_file(path());
  if (!named) return {};
  for (const std::string& version : versions())
    if (const auto found = own_file(shared_memory / version); found && is_one_file(*found, *named))
      return version;
  return {};
}

std::string SharedNames::new_name() const {
  std::string name = new_prefix + name_;
  ::unlink((shared_memory / name).c_str());
  return name;
}

bool SharedNames::has(const std::string& version, std::uint64_t bytes) const {
  const std::optional<struct stat> found = own_file(shared_memory / version);
  return found && static_cast<std::uint64_t>(found->st_size) == bytes;
}

Result<void> SharedNames::publish(const std::string& version) const {
  // A version has a second name from its beginning on, so no other daemon takes it for unused.
  const fs::path brought = shared_memory / (new_prefix + name_);
  if (::link(brought.c_str(), (shared_memory / version).c_str()) != 0 && errno != ENOENT &&
      errno != EEXIST)
    return system_failure("name the new version", errno);
  const fs::path next = shared_memory / ("." + name_ + ".next");
  ::unlink(next.c_str());  // of a daemon that was killed here
  if (::link((shared_memory / version).c_str(), next.c_str()) != 0 ||
      ::rename(next.c_str(), path().c_str()) != 0)
    return system_failure("give the new version its name", errno);
  remove_rests(version);
  return {};
}

void SharedNames::remove_rests(const std::string& version) const {
  ::unlink((shared_memory / ("." + name_ + ".next")).c_str());  // rename() leaves it of one file
  ::unlink((shared_memory / (new_prefix + name_)).c_str());
  remove_unused(version);
}

void SharedNames::remove() const {
  ::unlink(path().c_str());
  remove_unused({});
}

// A version that has a name beside its own is another daemon's.
void SharedNames::remove_unused(const std::string& but) const {
  for (const std::string& version : versions()) {
    const std::optional<struct stat> found = own_file(shared_memory / version);
    if (version != but && found && found->st_nlink == 1)
      ::unlink((shared_memory / version).c_str());
  }
}

}  // namespace weightmap::cli::hold
