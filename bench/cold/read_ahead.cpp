#include "bench/cold/read_ahead.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <utility>

#include "tools/support/text.hpp"

namespace weightmap::cli::bench {

ReadAhead ReadAhead::of(const std::string& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return ReadAhead("");
  const std::string number =
      std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
  // A disk has it, a partition's disk is the folder above, and a file system without a disk of its
  // own (btrfs, NFS) has only the last.
  for (const std::string& setting : {"/sys/dev/block/" + number + "/queue/read_ahead_kb",
                                     "/sys/dev/block/" + number + "/../queue/read_ahead_kb",
                                     "/sys/class/bdi/" + number + "/read_ahead_kb"})
    if (std::ifstream(setting).good()) return ReadAhead(setting);
  return ReadAhead("");
}

ReadAhead::ReadAhead(ReadAhead&& other) noexcept
    : setting_(std::move(other.setting_)), before_(std::exchange(other.before_, std::nullopt)) {}

ReadAhead::~ReadAhead() {
  if (before_) write(*before_ / 1024);
}

std::optional<std::uint64_t> ReadAhead::bytes() const {
  std::ifstream file(setting_);
  std::uint64_t kibibytes = 0;
  if (!(file >> kibibytes)) return std::nullopt;
  return kibibytes * 1024;
}

Result<void> ReadAhead::set(std::uint64_t wanted) {
  const std::optional<std::uint64_t> now = bytes();
  if (!now) return failure(ErrorCode::io, "the file's device has no read-ahead to set");
  if (!before_) before_ = now;
  if (!write(wanted / 1024) || bytes() != wanted / 1024 * 1024)
    return failure(ErrorCode::io, "cannot set " + printable(setting_) + " to " +
                                      std::to_string(wanted / 1024) + " (it takes root)");
  return {};
}

bool ReadAhead::write(std::uint64_t kibibytes) const {
  std::ofstream file(setting_);
  file << kibibytes << std::flush;
  return file.good();
}

}  // namespace weightmap::cli::bench
