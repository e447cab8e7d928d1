// How far a change in place has come, in a file of the folder that is changed. Written before and
// after each window, without waiting for the disk: it survives the end of the process at any
// moment, but not a loss of power.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

class ChangeJournal {
 public:
  struct Position {
    std::uint64_t tensor = 0;  // its number among those that change, in the order of the base
    std::uint64_t offset = 0;  // bytes of it that are changed
    bool operator==(const Position&) const noexcept = default;
  };
  // What was at the position before a window there was begun, and perhaps not ended.
  struct Begun {
    Position position;
    std::vector<std::byte> old_bytes;
  };

  // Opens the one in the folder; nullopt: there is none. `chain` names what is applied to what:
  // fails with invalid_argument if the journal is of something else, with corrupt if it is none.
  static Result<std::optional<ChangeJournal>> open(const std::filesystem::path& folder,
                                                   const std::string& chain);
  static bool is_in(const std::filesystem::path& folder);
  static Result<ChangeJournal> create(const std::filesystem::path& folder,
                                      const std::string& chain);

  const Position& position() const noexcept { return position_; }
  // The window that was begun last, if it was not ended.
  const std::optional<Begun>& begun() const noexcept { return begun_; }

  // Before the bytes at position() are changed.
  Result<void> begin(std::span<const std::byte> old_bytes);
  // After that.
  Result<void> end(Position next);
  // Removes the file.
  Result<void> remove();

 private:
  ChangeJournal(std::filesystem::path path, os::File file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  os::File file_;
  Position position_;
  std::optional<Begun> begun_;
};

}  // namespace weightmap::delta
