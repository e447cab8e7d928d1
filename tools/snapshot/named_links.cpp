#include "tools/snapshot/named_links.hpp"

#include <climits>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

void add(std::string_view text, std::vector<NamedLink>& links) {
  if (text.empty() || text.size() >= PATH_MAX || text.find('\0') != std::string_view::npos) return;
  std::error_code error;
  const fs::path path = fs::absolute(fs::path(text), error);
  const fs::path target = error ? fs::path() : fs::canonical(path, error);
  if (!error && target != path.lexically_normal()) links.push_back({path, target});
}

}  // namespace

std::vector<NamedLink> named_links(const std::vector<std::string>& words,
                                   const char* const* environment) {
  std::vector<NamedLink> links;
  const auto add_text_of = [&links](std::string_view entry) {
    if (const std::size_t equals = entry.find('='); equals != std::string_view::npos)
      add(entry.substr(equals + 1), links);
  };
  for (const std::string& word : words) {
    add(word, links);
    add_text_of(word);
  }
  for (; *environment != nullptr; ++environment) add_text_of(*environment);
  return links;
}

std::string first_moved(const std::vector<NamedLink>& links) {
  for (const NamedLink& then : links) {
    std::error_code error;
    const fs::path now = fs::canonical(then.path, error);
    if (error) return printable(then.path) + " is gone";
    if (now != then.target)
      return printable(then.path) + " leads to " + printable(now.native()) + ", and led to " +
             printable(then.target);
  }
  return {};
}

}  // namespace weightmap::cli::snapshot
