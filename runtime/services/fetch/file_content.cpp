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
  const catalog::ListedTensors listed = state.listed();
  const auto add = [&](std::size_t index) {
    const TensorPlace place = state.tensors.at(index);  // without one its use tells why
    if (place.entry == nullptr) return;
    if (const auto range = in_file(file, place.entry->position, place.entry->extent))
      ranges.push_back(*range);
  };
  for (const std::string& text : order) {
    const std::uint32_t named = listed.find(text);
    if (named != catalog::Catalog::none) add(named);
    const NamePattern pattern(text);
    if (!pattern.has_wildcards()) {
      const std::uint32_t found = listed.find(pattern.name());  // another one, if it was escaped
      if (found != catalog::Catalog::none) add(found);
      continue;
    }
    for (std::size_t i = 0; i < listed.size(); ++i)
      if (pattern.matches(listed.name(i))) add(i);
  }
  return ranges;
}

}  // namespace

StorageSums sums_of(const Checkpoint::State& state, const SourceFile& file,
                    const FetchOptions& options) {
  std::vector<SummedStorage> summed;
  if (!options.verify) return StorageSums({});
  const catalog::ListedTensors listed = state.listed();
  for (std::size_t i = 0; i < listed.storage_count(); ++i) {
    const catalog::StorageEntry* const storage = state.tensors.storage(i).storage;
    if (storage == nullptr || storage->crc32 == 0) continue;
    if (const auto range = in_file(file, storage->position, storage->nbytes))
      summed.push_back({*range, storage->crc32, listed.key(i)});
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
