// Checks of an open checkpoint that read the file again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/progress.hpp"

namespace weightmap {

// Reads and sums storages, one after the other. What it is made with must outlive it.
class StorageSummer {
 public:
  StorageSummer(const Sources& sources, const catalog::Catalog& catalog, Progress progress = {});

  // Compares the CRC-32 of one storage of the catalog, and adds what came of it to `report`. false:
  // `cancelled` was set, at which it looks once a MiB, or `progress` said so, which the report
  // says, and nothing is known of this storage.
  bool check(std::size_t storage, CrcReport& report, const std::atomic<bool>& cancelled = never);

 private:
  // nullopt: cancelled.
  Result<std::optional<std::uint32_t>> crc_of(const catalog::StorageEntry& storage,
                                              CrcReport& report,
                                              const std::atomic<bool>& cancelled);
  bool advance(std::uint64_t nbytes, CrcReport& report);  // false: go no further
  Error difference(std::size_t storage, std::uint32_t sum);
  std::string users_of(std::size_t storage);

  static inline const std::atomic<bool> never{false};

  const Sources& sources_;
  const catalog::Catalog& catalog_;
  Progress progress_;
  std::vector<std::byte> chunk_;
  std::uint64_t total_ = 0;
  // The tensors of each storage, once one of them differs.
  struct Users {
    const catalog::Entry* first = nullptr;
    std::size_t count = 0;
  };
  std::vector<Users> users_;
};

}  // namespace weightmap
