#include "tools/doctor/import_times.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace weightmap::cli::doctor {
namespace {

constexpr std::string_view marker = "import time: ";
constexpr std::string_view heading = "self [us] | cumulative | imported package";
constexpr std::string_view separator = " | ";
constexpr std::size_t longest_line = 1024;
constexpr std::size_t most_modules = 65536;
constexpr double microsecond = 1e-6;

// Returns where the marker begins, or at the end of the text what may become one.
std::size_t marker_in(std::string_view text) noexcept {
  const std::size_t whole = text.find(marker);
  if (whole != std::string_view::npos) return whole;
  std::size_t length = std::min(marker.size() - 1, text.size());
  while (!marker.starts_with(text.substr(text.size() - length))) --length;
  return text.size() - length;
}

// Takes "   123 | " from the front, in microseconds. Where several threads import, Python's own
// subtraction may go below 0.
std::optional<double> take_seconds(std::string_view& text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(separator)) return std::nullopt;
  text.remove_prefix(separator.size());
  return static_cast<double>(std::max<std::int64_t>(number, 0)) * microsecond;
}

}  // namespace

std::string ImportTimes::take(std::string_view text) {
  awaited_ += text;
  std::string others;
  std::string_view left = awaited_;
  for (;;) {
    const std::size_t at = marker_in(left);
    others += left.substr(0, at);
    left.remove_prefix(at);
    const std::size_t end = std::min(left.find('\n'), left.size());
    if (end == left.size() && end <= longest_line) break;
    const std::size_t length = std::min(end + 1, left.size());
    if (end > longest_line || !note(left.substr(0, end))) others += left.substr(0, length);
    left.remove_prefix(length);
  }
  awaited_.erase(0, awaited_.size() - left.size());
  return others;
}

std::string ImportTimes::take_rest() { return std::exchange(awaited_, {}); }

bool ImportTimes::note(std::string_view line) {
  line.remove_prefix(marker.size());
  if (line == heading) {
    ++interpreters_;
    return true;
  }
  const std::optional<double> own_seconds = take_seconds(line);
  const std::optional<double> seconds = own_seconds ? take_seconds(line) : std::nullopt;
  const std::size_t indent = line.find_first_not_of(' ');
  if (!seconds || indent == std::string_view::npos) return false;
  ++count_;
  seconds_ += *own_seconds;
  if (modules_.size() < most_modules) add(line.substr(indent), *own_seconds, *seconds, indent / 2);
  return true;
}

// A module comes behind what it has imported, which is one deeper. Of several interpreters that
// write at once it takes those for which it has had the time.
void ImportTimes::add(std::string_view name, double own_seconds, double seconds,
                      std::size_t depth) {
  const std::size_t number = modules_.size();
  modules_.push_back({std::string(name), own_seconds, seconds, std::nullopt});
  if (waiting_.size() < depth + 2) waiting_.resize(depth + 2);
  std::vector<std::size_t>& imported = waiting_[depth + 1];
  double left = seconds - own_seconds + microsecond;
  // Each number is rounded.
  while (!imported.empty() && modules_[imported.back()].seconds <= left + microsecond) {
    ImportedModule& module = modules_[imported.back()];
    left += microsecond - module.seconds;
    module.importer = number;
    imported.pop_back();
  }
  waiting_[depth].push_back(number);
}

}  // namespace weightmap::cli::doctor
