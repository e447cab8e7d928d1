#include "runtime/services/verify/storage_summer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/storage_offsets.hpp"

namespace weightmap {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

std::string record_name(const catalog::Catalog& catalog, const catalog::StorageEntry& storage) {
  return zip::storage_record(catalog.text(storage.key));
}

}  // namespace

StorageSummer::StorageSummer(const Sources& sources, const catalog::Catalog& catalog,
                             Progress progress)
    : sources_(sources),
      catalog_(catalog),
      progress_(std::move(progress)),
      chunk_(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes)) {
  for (const catalog::StorageEntry& storage : catalog.storages()) total_ += storage.nbytes;
}

bool StorageSummer::check(std::size_t index, CrcReport& report,
                          const std::atomic<bool>& cancelled) {
  const catalog::StorageEntry& storage = catalog_.storages()[index];
  if (storage.crc32 == 0 && storage.nbytes > 0) {
    ++report.storages_without_crc;
    return advance(storage.nbytes, report);
  }
  const Result<std::optional<std::uint32_t>> sum = crc_of(storage, report, cancelled);
  if (sum && !*sum) return false;
  ++report.storages_checked;
  if (!sum)
    report.faults.push_back(sum.error());
  else if (**sum != storage.crc32)
    report.faults.push_back(difference(index, **sum));
  return true;
}

Result<std::optional<std::uint32_t>> StorageSummer::crc_of(const catalog::StorageEntry& storage,
                                                           CrcReport& report,
                                                           const std::atomic<bool>& cancelled) {
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < storage.nbytes;) {
    if (cancelled) return std::nullopt;
    const std::span<std::byte> part(chunk_.get(), static_cast<std::size_t>(std::min<std::uint64_t>(
                                                      chunk_bytes, storage.nbytes - done)));
    TRY(sources_.read(storage.position + done, part));
    crc = zip::crc32(part, crc);
    done += part.size();
    if (!advance(part.size(), report)) return std::nullopt;
  }
  return crc;
}

bool StorageSummer::advance(std::uint64_t nbytes, CrcReport& report) {
  report.bytes += nbytes;
  report.cancelled = progress_ && !progress_(report.bytes, total_);
  return !report.cancelled;
}

// Returns `, the storage of tensor "norm.weight"`, and the number of others; empty if there are
// none.
std::string StorageSummer::users_of(std::size_t storage) {
  if (users_.empty()) {
    users_.resize(catalog_.storages().size());
    for (const catalog::Entry& entry : catalog_.entries()) {
      Users& users = users_[entry.storage];
      if (users.first == nullptr) users.first = &entry;
      ++users.count;
    }
  }
  const auto& [first, count] = users_[storage];
  if (first == nullptr) return {};
  std::string text = ", the storage of tensor " + bytes::quote(catalog_.name(*first));
  if (count > 1) text += " and " + std::to_string(count - 1) + " more";
  return text + ",";
}

Error StorageSummer::difference(std::size_t index, std::uint32_t sum) {
  const catalog::StorageEntry& storage = catalog_.storages()[index];
  return sources_.about_position({ErrorCode::corrupt,
                                  "record " + bytes::quote(record_name(catalog_, storage)) +
                                      " of " + std::to_string(storage.nbytes) + " bytes" +
                                      users_of(index) + zip::crc_mismatch(sum, storage.crc32),
                                  storage.position,
                                  {}});
}

}  // namespace weightmap
