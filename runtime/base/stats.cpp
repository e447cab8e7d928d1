#include "weightmap/checkpoint_info.hpp"

namespace weightmap {

std::string_view to_string(OffsetStrategy strategy) noexcept {
  switch (strategy) {
    case OffsetStrategy::none:
      return "none";
    case OffsetStrategy::calculated:
      return "calculated";
    case OffsetStrategy::directory:
      return "directory";
    case OffsetStrategy::headers:
      return "headers";
  }
  return "unknown";
}

}  // namespace weightmap
