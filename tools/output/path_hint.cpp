#include "tools/output/path_hint.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_shown = 4;
constexpr std::size_t most_looked_at = 4096;

std::vector<std::string> names_in(const fs::path& folder,
                                  const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<std::string> names;
  std::error_code failed;
  std::size_t seen = 0;
  for (fs::directory_iterator entry(folder, failed), end;
       !failed && entry != end && seen++ < most_looked_at; entry.increment(failed))
    if (std::string name = entry->path().filename(); is_wanted(name))
      names.push_back(std::move(name));
  std::ranges::sort(names);
  return names;
}

// Returns the number of bytes to insert, delete or replace.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char c : from) {
    std::size_t diagonal = row[0]++;
    for (std::size_t i = 0; i < to.size(); ++i) {
      const std::size_t replaced = diagonal + (c == to[i] ? 0 : 1);
      diagonal = row[i + 1];
      row[i + 1] = std::min({replaced, row[i] + 1, row[i + 1] + 1});
    }
  }
  return row.back();
}

std::string quoted(const fs::path& folder, const std::vector<std::string>& names,
                   std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_shown); ++i)
    text += (i == 0                  ? ""
             : i + 1 == names.size() ? std::string(last)
                                     : ", ") +
            "\"" + printable((folder / names[i]).native()) + "\"";
  if (names.size() > most_shown)
    text += " and " + std::to_string(names.size() - most_shown) + " more";
  return text;
}

std::string near_names(const fs::path& path) {
  const std::string wanted = path.filename();
  const std::size_t limit = std::max<std::size_t>(wanted.size() / 4, 1);
  const auto is_near = [&](const std::string& name) {
    return name != wanted &&  // a dangling link
           std::max(name.size(), wanted.size()) - std::min(name.size(), wanted.size()) <= limit &&
           distance(wanted, name) <= limit;
  };
  const fs::path folder = path.parent_path();
  std::vector<std::string> names = names_in(folder.empty() ? "." : folder, is_near);
  std::ranges::stable_sort(names, {},
                           [&](const std::string& name) { return distance(wanted, name); });
  names.resize(std::min(names.size(), most_shown));
  return names.empty() ? "" : "; did you mean " + quoted(folder, names, " or ") + "?";
}

}  // namespace

std::string path_hint(const Error& error, const std::string& path) {
  return error.os_error == ENOENT ? near_names(path) : "";
}

}  // namespace weightmap::cli
