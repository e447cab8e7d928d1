// The profile of a set: which units were used, as lines of text.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/resident/resident_state.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap {
namespace {

constexpr std::string_view profile_head = "# Units by their last use, with their uses\n";
constexpr std::uint64_t most_profile_bytes = std::uint64_t{64} << 20;

Result<std::string> text_of(const std::string& path) {
  Result<os::File> file = os::File::open(path, false);
  if (!file) {
    file.error().code = ErrorCode::io;  // it is no checkpoint
    return tl::unexpected<Error>(std::move(file.error()));
  }
  if (file->size() > most_profile_bytes)
    return failure(ErrorCode::limit_exceeded, "the profile has more than 64 MiB");
  std::string text(file->size(), '\0');
  TRY(file->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// A name of any bytes, in one line.
std::string line_of(std::string_view name) {
  return bytes::escape(name, std::numeric_limits<std::size_t>::max());
}

// The other way round: each backslash of a line begins \xNN.
std::string name_in(std::string_view text) {
  std::string name;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = text.substr(at, 2) == "\\x" && at + 4 <= text.size()
                          ? bytes::number(text.substr(at + 2, 2), 16)
                          : std::nullopt;
    name += byte ? static_cast<char>(*byte) : text[at];
    if (byte) at += 3;
  }
  return name;
}

}  // namespace

Result<void> ResidentSet::save_profile(const std::string& path) const {
  const std::vector<UnitHistory> histories = history();
  std::vector<std::size_t> order(histories.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return histories[i].last_used; });
  std::string text(profile_head);
  for (const std::size_t i : order)
    if (histories[i].uses != 0)
      text += std::to_string(histories[i].uses) + ' ' + line_of(units()[i].name) + '\n';
  TRY_ASSIGN(NewFile file, NewFile::create(path, {.durable = false}));
  TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::vector<UnitUses>> read_profile(const std::string& path) {
  const auto about_file = [&path](Error error) {
    if (error.file.empty()) error.file = bytes::escape(path);
    return tl::unexpected<Error>(std::move(error));
  };
  const Result<std::string> text = text_of(path);
  if (!text) return about_file(text.error());
  std::vector<UnitUses> lines;
  for (std::size_t at = 0, end = 0; at < text->size(); at = end + 1) {
    end = std::min(text->find('\n', at), text->size());
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    if (line.starts_with('#') || line.empty()) continue;
    const std::size_t blank = line.find(' ');
    const auto uses = bytes::number(line.substr(0, blank));
    if (blank == std::string_view::npos || !uses)
      return about_file({ErrorCode::corrupt,
                         "a line of the profile is " + bytes::quote(line) +
                             ", expected a number of uses and the name of a unit",
                         at});
    lines.push_back({name_in(line.substr(blank + 1)), *uses});
  }
  return lines;
}

Result<void> ResidentSet::load_profile(const std::string& path) const {
  TRY_ASSIGN(const std::vector<UnitUses> lines, read_profile(path));
  std::vector<std::size_t> known;
  for (const UnitUses& line : lines)
    if (const auto unit = find(line.name)) known.push_back(*unit);
  prefetch(last_that_fit(known));
  return {};
}

// Those that were used last, the last one first, so that it is there the soonest.
std::vector<std::size_t> ResidentSet::last_that_fit(const std::vector<std::size_t>& units) const {
  std::vector<std::size_t> chosen;
  std::uint64_t bytes = 0;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    bytes += state_->plan.slot_bytes(static_cast<std::uint32_t>(*unit));
    if (bytes > state_->table().budget_bytes()) break;
    chosen.push_back(*unit);
  }
  return chosen;
}

}  // namespace weightmap
