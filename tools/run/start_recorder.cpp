#include "tools/run/start_recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "tools/run/files_in_use.hpp"
#include "tools/run/named_models.hpp"

namespace weightmap::cli::start {
namespace {

namespace fs = std::filesystem;

// A file of the hub's cache has no ending, but is as large as this.
constexpr std::uintmax_t smallest_nameless_weights = std::uintmax_t{64} << 20;

bool is_code(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.ends_with(".py") || name.ends_with(".pyc") || name.ends_with(".so") ||
         name.find(".so.") != std::string_view::npos ||
         path.find("/bin/") != std::string_view::npos;
}

// 0 for what is no file of weights.
std::uint64_t weight_bytes_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) return 0;
  return is_weights_file(path, bytes) || bytes >= smallest_nameless_weights ? bytes : 0;
}

// True for safetensors (the length of a header, and the header) and GGUF, whatever their names.
bool can_be_mapped(const std::string& path) {
  std::array<char, 9> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  return std::string_view(begin.data(), 4) == "GGUF" || (file.gcount() == 9 && begin[8] == '{');
}

}  // namespace

StartRecorder::StartRecorder(const std::vector<std::string>& places) : opened_(places) {}

void StartRecorder::look(ProcessTree& processes) {
  if (opened_.is_watching())
    opened_.take([&](const FileEvent& event) {
      if (event.is_opened && processes.contains(event.process)) note(event.path);
    });
  else
    for (const pid_t process : processes.members()) look_at_files(process);
  const ProcessCounts counts = processes.counts();
  if (counts.anonymous_bytes + counts.file_bytes == 0) return;  // the command has ended
  now_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  now_.counts = counts;
  now_.reader_bytes = disk_bytes_of(::getpid());
  samples_.push_back(now_);
}

std::uint64_t StartRecorder::activity() const noexcept {
  return now_.counts.read_bytes + files_.size();
}

void StartRecorder::note(const std::string& path) {
  if (!files_.insert(path).second) return;
  if (is_code(path)) {
    ++now_.code_files;
  } else if (const std::uint64_t bytes = weight_bytes_of(path); bytes > 0) {
    now_.weight_bytes += bytes;
    has_other_weights_ = has_other_weights_ || !can_be_mapped(path);
  }
}

// Mappings are read only where the process has other ones than before, as their size tells.
void StartRecorder::look_at_files(pid_t process) {
  for (const std::string& path : open_files(process)) note(path);
  const std::uint64_t bytes = mapped_bytes_of(process);
  std::uint64_t& known = mapped_bytes_[process];
  if (bytes == known) return;
  known = bytes;
  for (const MappedPart& part : mapped_parts(process)) note(part.path);
}

StartTimeline StartRecorder::timeline(const std::string& program, Clock::time_point until,
                                      bool has_ended) const {
  StartTimeline timeline{fs::path(program).filename().native(), has_ended, samples_};
  timeline.weights_can_be_mapped = now_.weight_bytes > 0 && !has_other_weights_;
  end_at(timeline, std::chrono::duration<double>(until - began_).count());
  return timeline;
}

}  // namespace weightmap::cli::start
