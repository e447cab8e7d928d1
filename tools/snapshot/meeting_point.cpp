#include "tools/snapshot/meeting_point.hpp"

#include <span>
#include <string>

#include "runtime/base/try.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli::snapshot {
namespace {

// The answer is a list of texts, each of which ends with a zero byte, as an environment does.
Result<void> write_answer(const std::filesystem::path& folder, const std::string& text) {
  NewFileOptions options;
  options.mode = 0600;
  options.durable = false;
  TRY_ASSIGN(NewFile file, NewFile::create(folder / "answer", options));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace

std::filesystem::path call_in(const std::filesystem::path& folder, pid_t supervisor) {
  return std::filesystem::path("/proc") / std::to_string(supervisor) / "root" /
         (folder / "called").relative_path();
}

Result<void> answer_original(const std::filesystem::path& folder) {
  return write_answer(folder, std::string("original\0", 9));
}

Result<void> answer_restored(const std::filesystem::path& folder, const char* const* environment) {
  std::string text("restored\0", 9);
  for (; *environment != nullptr; ++environment) (text += *environment) += '\0';
  return write_answer(folder, text);
}

}  // namespace weightmap::cli::snapshot
