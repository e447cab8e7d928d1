#include <algorithm>

#include "runtime/base/bytes/decimal.hpp"
#include "weightmap/checkpoint_info.hpp"

namespace weightmap {

bool ReservedStorages::is_unwritten(std::string_view key) const noexcept {
  return std::binary_search(unwritten.begin(), unwritten.end(), bytes::decimal(key));
}

}  // namespace weightmap
