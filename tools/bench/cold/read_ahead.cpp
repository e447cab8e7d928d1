#include "tools/bench/cold/read_ahead.hpp"

#include <fstream>
#include <utility>

#include "runtime/services/inspect/surroundings.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {

ReadAhead ReadAhead::of(const std::string& file) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(file, OpenOptions::to_look());
  if (!checkpoint) return ReadAhead("");
  return ReadAhead(surroundings(*checkpoint).files.front().read_ahead_setting.string());
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
