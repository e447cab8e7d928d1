#include "weightmap/stats.hpp"

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

std::string_view to_string(CatalogSource source) noexcept {
  switch (source) {
    case CatalogSource::parsed:
      return "parsed";
    case CatalogSource::published:
      return "published";
    case CatalogSource::attached:
      return "attached";
  }
  return "unknown";
}

}  // namespace weightmap
