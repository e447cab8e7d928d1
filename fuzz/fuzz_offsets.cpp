// Lays out an archive in any way, and possibly damages it: the computed places of storages equal
// those of their local headers, or the archive is refused.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "fuzz/target.hpp"
#include "runtime/base/zip/directory.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "tests/support/archive_builder.hpp"

namespace {

using namespace weightmap;
using test::Bytes;

struct Laid {
  test::ArchiveBuilder builder;
  std::uint64_t alignment;
  std::vector<std::size_t> storages;  // indices of records
  bool is_plain_only = true;          // all of them are in torch's form
};

std::string payload(FuzzedDataProvider& input, char content) {
  return std::string(input.ConsumeIntegralInRange<std::size_t>(0, 300), content);
}

std::vector<std::size_t> order(FuzzedDataProvider& input, std::size_t count) {
  std::vector<std::size_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i;
  if (input.ConsumeBool()) return numbers;
  for (std::size_t i = count; i > 1; --i)
    std::swap(numbers[i - 1], numbers[input.ConsumeIntegralInRange<std::size_t>(0, i - 1)]);
  return numbers;
}

Laid lay_out(FuzzedDataProvider& input) {
  const std::uint64_t alignment = input.ConsumeBool()
                                      ? std::uint64_t{1} << input.ConsumeIntegralInRange(0, 13)
                                      : input.ConsumeIntegralInRange<std::uint64_t>(1, 5000);
  Laid laid{test::ArchiveBuilder(alignment), alignment, {}, true};
  if (input.ConsumeBool())
    laid.builder.bytes().resize(input.ConsumeIntegralInRange<std::size_t>(0, 100));
  const std::string top(input.ConsumeIntegralInRange<std::size_t>(1, 40), 'a');
  const bool is_mixed = input.ConsumeBool();
  const auto count = input.ConsumeIntegralInRange<std::size_t>(1, 12);
  std::size_t records = 0;
  for (const std::size_t number : order(input, count)) {
    if (input.ConsumeIntegralInRange(0, 7) == 0)
      laid.builder.add(top + "/x" + std::to_string(records++), payload(input, 'x'));
    const std::string name = top + "/data/" + std::to_string(number);
    const std::string content = payload(input, static_cast<char>('A' + number));
    if (is_mixed && input.ConsumeBool()) {
      laid.builder.add_plain(name, content);
      laid.is_plain_only = false;
    } else {
      laid.builder.add(name, content);
    }
    laid.storages.push_back(records++);
  }
  return laid;
}

// Changes a few bytes in the headers, or anywhere.
bool damage(FuzzedDataProvider& input, Bytes& file) {
  bool is_damaged = false;
  for (auto times = input.ConsumeIntegralInRange(0, 2); times > 0; --times) {
    const auto at = input.ConsumeIntegralInRange<std::size_t>(0, file.size() - 1);
    const auto value = input.ConsumeIntegral<std::uint8_t>();
    is_damaged |= file[at] != std::byte{value};
    file[at] = std::byte{value};
  }
  return is_damaged;
}

std::uint64_t number_at(const Bytes& file, std::uint64_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(file.at(at + i));
  return value;
}

std::uint64_t payload_by_header(const Bytes& file, const zip::Record& record) {
  const std::uint64_t at = record.header_offset;
  fuzz::require(number_at(file, at, 4) == 0x04034b50, "a storage has no local header");
  fuzz::require(number_at(file, at + 26, 2) == record.name_length, "a local header differs");
  return at + 30 + number_at(file, at + 26, 2) + number_at(file, at + 28, 2);
}

using Extents = std::pmr::vector<zip::StorageExtent>;

void check_extents(const Bytes& file, const zip::Directory& directory, const Extents& extents) {
  for (const zip::StorageExtent& extent : extents) {
    const zip::Record& record = directory.records()[extent.record];
    fuzz::require(extent.payload_offset == payload_by_header(file, record),
                  "a storage was calculated to be elsewhere than its header says");
    fuzz::require(extent.nbytes == record.size &&
                      extent.payload_offset + extent.nbytes <= directory.limit_of(record),
                  "a storage reaches into the next record");
  }
}

void check(std::span<const std::byte> bytes) {
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  Laid laid = lay_out(input);
  const bool is_classic = input.ConsumeIntegralInRange(0, 3) == 0;
  Bytes file = is_classic ? laid.builder.finish_classic() : laid.builder.finish();
  const bool is_damaged = damage(input, file);

  const bytes::MemorySource source(file);
  bytes::ReadCache cache(source, *std::pmr::new_delete_resource());
  const Result<zip::Directory> directory = zip::Directory::read(cache, 1u << 20);
  fuzz::require(directory || is_damaged,
                "an archive is refused: " + (directory ? "" : to_string(directory.error())));
  if (!directory) return;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < laid.storages.size(); ++i) keys.push_back(std::to_string(i));
  std::vector<zip::StorageRequest> requests;
  for (const std::string& key : keys) {
    const zip::Record* const record = directory->find(zip::storage_record(key));
    if (record == nullptr) return fuzz::require(is_damaged, "a storage is not found");
    requests.push_back(
        {key, record->size, 1, DType::uint8, static_cast<std::uint32_t>(requests.size())});
  }
  OpenStats stats;
  const Result<Extents> extents =
      zip::locate_storages(*directory, requests, {laid.alignment, false}, cache, source, stats,
                           *std::pmr::new_delete_resource());
  fuzz::require(extents || is_damaged,
                "storages are refused: " + (extents ? "" : to_string(extents.error())));
  if (!extents) return;
  OpenStats verified;
  const bool is_verified = zip::verify_extents(*directory, *extents, source, verified).has_value();
  fuzz::require(is_verified || is_damaged, "an undamaged archive is not verified");
  if (!is_verified) return;
  check_extents(file, *directory, *extents);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
