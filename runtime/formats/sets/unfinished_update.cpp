#include "runtime/formats/sets/unfinished_update.hpp"

#include <string>
#include <system_error>

namespace weightmap::sets {

Result<void> check_no_update(const std::filesystem::path& folder) {
  std::error_code unknown;
  if (!std::filesystem::exists(folder / update_mark, unknown)) return {};
  return failure(ErrorCode::corrupt,
                 "is of a folder in which weightmap fetch has replaced some files of a set and not "
                 "yet the others, so they are of two versions; if it was killed, fetch the set "
                 "again (" +
                     std::string(update_mark) + " in the folder says so)");
}

}  // namespace weightmap::sets
