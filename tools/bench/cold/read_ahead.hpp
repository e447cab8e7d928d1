// Reads and sets the read-ahead of a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// The setting of one device. A file copies it at its open, so a change affects later opens only.
class ReadAhead {
 public:
  // Returns the setting of the device with `file`.
  static ReadAhead of(const std::string& file);

  ReadAhead(ReadAhead&& other) noexcept;
  ReadAhead& operator=(ReadAhead&&) = delete;
  ~ReadAhead();  // restores the previous setting

  // Returns nullopt if the system has no such setting.
  std::optional<std::uint64_t> bytes() const;
  // Rounds down to whole KiB. Fails with io if there is no such setting, or no permission.
  Result<void> set(std::uint64_t bytes);

 private:
  explicit ReadAhead(std::string setting) noexcept : setting_(std::move(setting)) {}
  bool write(std::uint64_t kibibytes) const;

  std::string setting_;  // a file in /sys; empty: none
  std::optional<std::uint64_t> before_;
};

}  // namespace weightmap::cli::bench
