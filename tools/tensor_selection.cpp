#include "tools/tensor_selection.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "tools/text.hpp"

namespace weightmap::cli {
namespace {

bool matches(const std::string& pattern, std::string_view name) {
  return pattern == name || fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](const std::string& pattern) { return matches(pattern, name); });
}

}  // namespace

Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection) {
  const std::vector<std::string> everything = {"*"};
  const auto& patterns = selection.patterns.empty() ? everything : selection.patterns;
  std::vector<std::size_t> chosen;
  std::vector<bool> taken(checkpoint.tensors().size());
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      if (!matches(pattern, tensor.name)) continue;
      found = true;
      if (taken[tensor.index] || matches_any(selection.except, tensor.name)) continue;
      taken[tensor.index] = true;
      chosen.push_back(tensor.index);
    }
    if (!found && &patterns != &everything)
      return failure(ErrorCode::invalid_argument,
                     "no tensor matches \"" + printable(pattern) + "\"");
  }
  return chosen;
}

Result<std::vector<std::string>> read_patterns(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return failure(ErrorCode::io, "cannot read the order in \"" + printable(path) +
                                      "\": " + std::generic_category().message(errno));
  std::vector<std::string> patterns;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line.front() != '#') patterns.push_back(line);
  return patterns;
}

}  // namespace weightmap::cli
