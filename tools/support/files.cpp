#include "tools/support/files.hpp"

#include <span>

#include "runtime/base/try.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli {

Result<void> replace_file(const std::filesystem::path& path, std::string_view text, unsigned mode) {
  NewFileOptions options;
  options.mode = mode;
  options.durable = false;
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

std::string_view staying_reason(const EvictReport& report) noexcept {
  if (report.cached_after == 0) return {};
  if (report.lives_in_memory) return "memory_file_system";
  return report.unwritten_bytes > 0 ? "unwritten" : "in_use";
}

std::string staying_text(const EvictReport& report) {
  const std::string_view reason = staying_reason(report);
  if (reason.empty()) return {};
  if (reason == "memory_file_system") return "the file system keeps its files in memory";
  if (reason == "unwritten")
    return human_bytes(report.unwritten_bytes) + " are not on the disk yet (sync writes them)";
  return "a process has them mapped or locked";
}

}  // namespace weightmap::cli
