// Symbolic links that a command's words and variables name, as `current` names a version of a
// model: another file behind the same name is another start.
#pragma once

#include <string>
#include <vector>

namespace weightmap::cli::snapshot {

struct NamedLink {
  std::string path, target;  // both absolute; no link is part of the target

  friend bool operator==(const NamedLink&, const NamedLink&) = default;
};

// Returns the paths among these words ("--model=PATH", too) and the texts of these variables that a
// link is part of.
std::vector<NamedLink> named_links(const std::vector<std::string>& words,
                                   const char* const* environment);

// Returns a sentence about the first link that leads elsewhere by now; empty if there is none.
std::string first_moved(const std::vector<NamedLink>& links);

}  // namespace weightmap::cli::snapshot
