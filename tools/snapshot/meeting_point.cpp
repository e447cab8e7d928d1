#include "tools/snapshot/meeting_point.hpp"

#include <algorithm>
#include <span>
#include <system_error>

#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/support/files.hpp"

namespace weightmap::cli::snapshot {
namespace {

constexpr std::uint64_t longest_call = std::uint64_t{1} << 20;

// The answer is a list of texts, each of which ends with a zero byte, as an environment does.
Result<void> write_answer(const std::filesystem::path& folder, const std::string& text) {
  return replace_file(folder / "answer", text, 0600);
}

}  // namespace

std::filesystem::path call_in(const std::filesystem::path& folder, pid_t supervisor) {
  return std::filesystem::path("/proc") / std::to_string(supervisor) / "root" /
         (folder / "called").relative_path();
}

// Each name ends with a zero byte.
Result<std::vector<std::string>> new_variables_of(const std::filesystem::path& call) {
  std::error_code error;
  if (std::filesystem::file_size(call, error) == 0) return std::vector<std::string>();
  TRY_ASSIGN(const os::File file, os::File::open_foreign(call));
  std::string text(std::min(file.size(), longest_call + 1), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  if (text.size() > longest_call || (!text.empty() && !text.ends_with('\0')))
    return failure(ErrorCode::corrupt, "the call of the command names no variables in " +
                                           std::to_string(file.size()) + " bytes, at most " +
                                           std::to_string(longest_call) +
                                           " are read, and a zero byte ends each name");
  std::vector<std::string> names;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\0', at);
    names.push_back(text.substr(at, end - at));
  }
  return names;
}

Result<void> answer_original(const std::filesystem::path& folder) {
  const std::string text("original\0", 9);
  if (write_answer(folder, text)) return {};
  return write_answer(folder, text);  // once more, since the command waits for nothing else
}

Result<void> answer_restored(const std::filesystem::path& folder, const char* const* environment) {
  std::string text("restored\0", 9);
  for (; *environment != nullptr; ++environment) (text += *environment) += '\0';
  return write_answer(folder, text);
}

}  // namespace weightmap::cli::snapshot
