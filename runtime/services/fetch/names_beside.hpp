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

  // The store has a file of this name; nullptr: it may have one.
  const ListedFile* find_listed(std::string_view name) const noexcept;
};
// As names_beside() of the folder's listing; without one the well-known names, whether the store
// has such files or not. `name` is that of `lead` in the folder. Fails as list() does.
Result<Beside> find_beside(RangeSource& lead, std::string_view name);

// The files in the folders of the model's modules, which its modules.json has: those that the store
// lists, or the well-known ones. Fails as module_folders() and list(); with limit_exceeded for more
// than 256.
Result<Beside> find_in_modules(const RangeSource& lead, std::string_view modules_json);

// The file of a checkpoint that leads to the others. Fails with unsupported if none does.
Result<std::string> only_one_of(std::vector<std::string> checkpoint);

}  // namespace weightmap
