// Which file leads to a remote model, and which belong beside its weights.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct Beside {
  std::vector<std::string> names = {};
  std::optional<Listing> listing = {};  // of the folder, if its store was asked and has one
  bool are_listed = false;              // the names are of the listing: the store has all of them
};
// As names_beside() of the folder's listing; without one the well-known names, whether the store
// has such files or not. `name` is that of `lead` in the folder. Fails as list() does.
Result<Beside> find_beside(RangeSource& lead, std::string_view name);

// The file of a checkpoint that leads to the others. Fails with unsupported if none does.
Result<std::string> only_one_of(std::vector<std::string> checkpoint);

}  // namespace weightmap
