// Sums storages whose bytes a reader has just brought in, behind it: no second read of the disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/bytes/byte_range.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/verify/storage_summer.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

// What it is made with must outlive it. step_done() and stop() may be called from any thread.
class VerifyBehind {
 public:
  // `steps` are what the reader brings in, in its order. `progress` gets the bytes summed and the
  // bytes of all storages, from the thread of run().
  VerifyBehind(const Sources& sources, const catalog::Catalog& catalog,
               std::span<const ByteRange> steps, Progress progress = {});

  // Step `index` is in memory.
  void step_done(std::size_t index);
  // No more steps will come.
  void stop();

  // Nothing more need be summed.
  void give_up();

  // Checks each storage that the steps cover as soon as its steps are done, and returns after the
  // last one, after stop(), or soon after give_up(). Called once.
  CrcReport run();

  // Storages that the steps do not cover as a whole.
  std::size_t left_out() const noexcept { return left_out_; }

 private:
  // A storage, and the steps that it lies in: by their number when they are sorted by offset.
  struct Job {
    std::size_t storage;
    std::size_t first;
    std::size_t end;
    std::size_t last_step;  // of them in the reader's order
  };

  void add_job(std::size_t storage, const catalog::StorageEntry& entry,
               std::span<const ByteRange> steps);
  bool wait_for(const Job& job);

  StorageSummer summer_;
  std::vector<std::size_t> by_offset_;  // numbers of steps
  std::vector<Job> jobs_;
  std::size_t left_out_ = 0;
  std::atomic<bool> given_up_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;  // by step; under the mutex
  bool stopped_ = false;    // likewise
};

}  // namespace weightmap
