// What Python interpreters tell of their imports on standard error (-X importtime).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::cli::doctor {

struct ImportedModule {
  std::string name;
  double own_seconds = 0;
  double seconds = 0;                   // with those of what it imports
  std::optional<std::size_t> importer;  // none: a program, or importlib, which does not tell
};

// Interpreters and threads may write at the same time, and a program whatever it likes.
class ImportTimes {
 public:
  // Takes what was written to standard error next. Returns what of it does not tell of imports.
  std::string take(std::string_view text);
  // Returns the beginning of a line that was awaited, and that did not become one about an import.
  std::string take_rest();

  // In the order of their ends, so each stands before its importer; the first 65536 of them.
  const std::vector<ImportedModule>& modules() const noexcept { return modules_; }
  std::uint64_t count() const noexcept { return count_; }  // of all of them
  double seconds() const noexcept { return seconds_; }     // of all of them
  std::uint64_t interpreters() const noexcept { return interpreters_; }

 private:
  // False if a line that begins with "import time: " does not tell of an import.
  bool note(std::string_view line);
  void add(std::string_view name, double own_seconds, double seconds, std::size_t depth);

  std::string awaited_;
  std::vector<ImportedModule> modules_;
  std::vector<std::vector<std::size_t>> waiting_;  // by depth, for the end of their importer
  std::uint64_t count_ = 0, interpreters_ = 0;
  double seconds_ = 0;
};

}  // namespace weightmap::cli::doctor
