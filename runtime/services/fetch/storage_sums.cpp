#include "runtime/services/fetch/storage_sums.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/bytes/range_set.hpp"
#include "runtime/base/zip/crc32.hpp"

namespace weightmap {
namespace {

std::uint64_t end_of(ByteRange range) noexcept { return range.offset + range.length; }

std::vector<SummedStorage> by_offset(std::vector<SummedStorage> storages) {
  std::sort(storages.begin(), storages.end(), [](const SummedStorage& a, const SummedStorage& b) {
    return a.range.offset < b.range.offset;
  });
  return storages;
}

}  // namespace

StorageSums::StorageSums(std::vector<SummedStorage> storages)
    : storages_(by_offset(std::move(storages))) {}

StorageSums::Storages StorageSums::storages_in(ByteRange range) const noexcept {
  const auto first = std::partition_point(
      storages_.begin(), storages_.end(),
      [&](const SummedStorage& storage) { return end_of(storage.range) <= range.offset; });
  const auto end = std::partition_point(first, storages_.end(), [&](const SummedStorage& storage) {
    return storage.range.offset < end_of(range);
  });
  return {first, end};
}

bool StorageSums::join(const SummedStorage& storage, std::uint64_t offset, Part& part) {
  auto behind = parts_.lower_bound(offset);
  if (behind != parts_.begin()) {
    const auto before = std::prev(behind);
    const auto& [first, front] = *before;
    if (first >= storage.range.offset && first + front.length == offset) {
      part = {front.length + part.length, zip::crc32_of_both(front.crc32, part.crc32, part.length)};
      offset = first;
      parts_.erase(before);
    }
  }
  if (behind != parts_.end() && behind->first == offset + part.length &&
      behind->first < end_of(storage.range)) {
    const Part& rest = behind->second;
    part = {part.length + rest.length, zip::crc32_of_both(part.crc32, rest.crc32, rest.length)};
    parts_.erase(behind);
  }
  if (part.length == storage.range.length) return true;
  parts_.emplace(offset, part);
  return false;
}

std::vector<StorageSums::Complete> StorageSums::add(std::uint64_t offset,
                                                    std::span<const std::byte> bytes) {
  std::vector<Complete> complete;
  const std::uint64_t end = offset + bytes.size();
  for (const SummedStorage& storage : storages_in({offset, bytes.size()})) {
    const std::uint64_t first = std::max(offset, storage.range.offset);
    const std::uint64_t length = std::min(end, end_of(storage.range)) - first;
    Part part{length, zip::crc32(bytes.subspan(first - offset, length))};
    if (join(storage, first, part)) complete.push_back({&storage, part.crc32});
  }
  return complete;
}

std::vector<ByteRange> StorageSums::without_storages(ByteRange range) const {
  bytes::RangeSet storages;
  for (const SummedStorage& storage : storages_in(range)) storages.add(storage.range);
  return storages.missing(range);
}

ByteRange StorageSums::with_storages(ByteRange range) const noexcept {
  const Storages storages = storages_in(range);
  if (storages.empty()) return range;
  const std::uint64_t begin = std::min(range.offset, storages.front().range.offset);
  return {begin, std::max(end_of(range), end_of(storages.back().range)) - begin};
}

}  // namespace weightmap
