#include "runtime/services/fetch/file_content.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/name_pattern.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

// nullopt for a range that is empty or not in the file, such as that of an inflated storage.
std::optional<ByteRange> in_file(const SourceFile& file, std::uint64_t position,
                                 std::uint64_t length) {
  if (length == 0 || position < file.base() ||
      !bytes::contains(file.file.size(), position - file.base(), length))
    return std::nullopt;
  return ByteRange{position - file.base(), length};
}

// The ranges of the tensors that the options name, in this order.
std::vector<ByteRange> ranges_in_order(const Checkpoint::State& state, const SourceFile& file,
                                       const std::vector<std::string>& order) {
  std::vector<ByteRange> ranges;
  const catalog::Catalog& catalog = state.catalog();
  const auto add = [&](const catalog::Entry& entry) {
    if (const auto range = in_file(file, entry.position, entry.extent)) ranges.push_back(*range);
  };
  for (const std::string& text : order) {
    const std::uint32_t named = catalog.find(text);
    if (named != catalog.none) add(catalog[named]);
    const NamePattern pattern(text);
    if (!pattern.has_wildcards()) {
      const std::uint32_t found = catalog.find(pattern.name());  // another one, if it was escaped
      if (found != catalog.none) add(catalog[found]);
      continue;
    }
    for (const catalog::Entry& entry : catalog.entries())
      if (pattern.matches(catalog.name(entry))) add(entry);
  }
  return ranges;
}

}  // namespace

StorageSums sums_of(const Checkpoint::State& state, const SourceFile& file,
                    const FetchOptions& options) {
  std::vector<SummedStorage> summed;
  if (!options.verify) return StorageSums({});
  const catalog::Catalog& catalog = state.catalog();
  for (const catalog::StorageEntry& storage : catalog.storages()) {
    const std::optional<ByteRange> range = in_file(file, storage.position, storage.nbytes);
    if (range && storage.crc32 != 0)
      summed.push_back({*range, storage.crc32, catalog.text(storage.key)});
  }
  return StorageSums(std::move(summed));
}

FetchPlan plan_of(const Checkpoint::State& state, const SourceFile& file,
                  const bytes::RangeSet& present, const StorageSums& sums,
                  const FetchOptions& options) {
  FetchPlan plan(file.file.size(), present, longest_piece(options));
  const std::vector<ByteRange> ordered = ranges_in_order(state, file, options.order);
  for (auto range = ordered.rbegin(); range != ordered.rend(); ++range)
    plan.put_first(sums.with_storages(*range));
  return plan;
}

std::uint64_t longest_piece(const FetchOptions& options) noexcept {
  constexpr std::uint64_t longest = std::uint64_t{1} << 40;
  return bytes::round_up(std::clamp<std::uint64_t>(options.chunk_bytes, 1, longest),
                         os::large_page);
}

}  // namespace weightmap
