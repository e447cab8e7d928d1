#include "runtime/zip/storage_run.hpp"

#include <algorithm>

#include "runtime/zip/local_header.hpp"

namespace weightmap::zip {

std::optional<StorageRun> StorageRun::find(const Directory& directory, std::uint64_t alignment,
                                           bytes::Windows& windows) {
  if (!directory.is_in_file_order() || !directory.storages().are_dense()) return std::nullopt;
  const StorageRun run(directory, alignment);
  const Record& first = run.records_[run.numbers_.first()];
  const auto by_rule = payload_by_rule(directory, first, run.layout_);
  if (!by_rule) return std::nullopt;
  const Result<std::uint64_t> by_header =
      read_local_header(windows, first, directory.limit_of(first));
  if (!by_header || *by_header != *by_rule) return std::nullopt;
  return run;
}

std::vector<StorageExtent> StorageRun::extents() const {
  constexpr std::uint64_t any = ~std::uint64_t{0};
  std::vector<StorageExtent> extents(count());
  for (std::uint32_t number = 0; number < count(); ++number) place(number, 0, any, extents[number]);
  return extents;
}

void StorageRun::count_into(OpenStats& stats) const noexcept {
  stats.strategy = std::max(stats.strategy, OffsetStrategy::calculated);
  stats.storages_calculated += count();
  ++stats.local_headers_read;
}

}  // namespace weightmap::zip
