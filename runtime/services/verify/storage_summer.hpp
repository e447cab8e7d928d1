// Checks of an open checkpoint that read the file again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
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

// The constructor's arguments must outlive it. step_done() and stop() are thread-safe.
class VerifyBehind {
 public:
  // `progress` receives the summed bytes and the bytes of all storages, in the thread of run().
  VerifyBehind(const Sources& sources, const catalog::Catalog& catalog,
               std::span<const ByteRange> steps, Progress progress = {});

  // Reports that step `index` of the plan is in memory.
  void step_done(std::size_t index);
  // Reports that no more steps will come.
  void stop();

  // Cancels the remaining work.
  void give_up();

  // Checks each storage that the steps cover as soon as its steps are done, and returns after the
  // last one, after stop(), or soon after give_up(). Called once.
  CrcReport run();

  // The number of storages that the plan does not cover as a whole.
  std::size_t left_out() const noexcept { return left_out_; }

 private:
  // A storage, and the range of its steps in the order of their offsets.
  struct Job {
    std::size_t storage;
    std::size_t first;
    std::size_t end;
    std::size_t last_step;  // the last of them in the plan's order
  };

  void add_job(std::size_t storage, const catalog::StorageEntry& entry,
               std::span<const ByteRange> steps);
  bool wait_for(const Job& job);

  StorageSummer summer_;
  std::vector<std::size_t> by_offset_;  // steps of the plan, sorted
  std::vector<Job> jobs_;
  std::size_t left_out_ = 0;
  std::atomic<bool> given_up_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;  // by step; protected by the mutex
  bool stopped_ = false;    // protected by the mutex
};

}  // namespace weightmap
