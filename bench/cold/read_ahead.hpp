// How far ahead the system reads on a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// The setting of one device. A file takes it over when it is opened, so that a change counts only
// for those who open it afterwards.
class ReadAhead {
 public:
  // Of the device that `file` lies on.
  static ReadAhead of(const std::string& file);

  ReadAhead(ReadAhead&& other) noexcept;
  ReadAhead& operator=(ReadAhead&&) = delete;
  ~ReadAhead();  // puts back what was set before

  // nullopt where the system has no such setting.
  std::optional<std::uint64_t> bytes() const;
  // Rounds down to whole KiB. Fails with io if there is no such setting, or it belongs to others.
  Result<void> set(std::uint64_t bytes);

 private:
  explicit ReadAhead(std::string setting) noexcept : setting_(std::move(setting)) {}
  bool write(std::uint64_t kibibytes) const;

  std::string setting_;  // a file in /sys; empty: none
  std::optional<std::uint64_t> before_;
};

}  // namespace weightmap::cli::bench
