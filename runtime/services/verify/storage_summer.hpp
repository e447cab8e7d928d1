// Checks of an open checkpoint that read the file again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Reads storages and computes their checksums. The constructor's arguments must outlive it.
class StorageSummer {
 public:
  StorageSummer(const Sources& sources, const catalog::Catalog& catalog, Progress progress = {});

  // Compares the CRC-32 of one storage of the catalog, and adds the result to `report`. Returns
  // false if `cancelled` was set, which it checks once per MiB, or `progress` returned false, which
  // the report notes; the storage is then unchecked.
  bool check(std::size_t storage, CrcReport& report, const std::atomic<bool>& cancelled = never);

 private:
  // Returns nullopt if cancelled.
  Result<std::optional<std::uint32_t>> crc_of(const catalog::StorageEntry& storage,
                                              CrcReport& report,
                                              const std::atomic<bool>& cancelled);
  bool advance(std::uint64_t nbytes, CrcReport& report);  // false: stop
  Error difference(std::size_t storage, std::uint32_t sum);
  std::string users_of(std::size_t storage);

  static inline const std::atomic<bool> never{false};

  const Sources& sources_;
  const catalog::Catalog& catalog_;
  Progress progress_;
  std::unique_ptr<std::byte[]> chunk_;
  std::uint64_t total_ = 0;
  // The tensors of each storage, computed at the first difference.
  struct Users {
    const catalog::Entry* first = nullptr;
    std::size_t count = 0;
  };
  std::vector<Users> users_;
};

}  // namespace weightmap
