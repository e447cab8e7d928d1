// Elects the reader among processes that prefetch one checkpoint, and makes the others wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mmap/mapping.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/checkpoint/sources.hpp"
#include "runtime/system/process/process_lock.hpp"
#include "runtime/system/process/runtime_directory.hpp"

namespace weightmap {

// One object for each warmer, shared by its threads. The files, the mapping and the steps must
// outlive it.
class WarmElection {
 public:
  // Looks at which steps are cached. `patience` is the maximum time without a heartbeat of the
  // reader.
  WarmElection(const Sources& sources, const mmap::Mapping& mapping,
               std::span<const ByteRange> steps, std::chrono::milliseconds patience);

  enum class Turn : std::uint8_t {
    map,   // it is cached and needs no disk access
    read,  // this warmer is the reader, or no election is possible
    stop,  // cancelled
  };
  // Blocks until the step is cached, this warmer may read it, or `cancelled` is set. It polls 50
  // to 1000 times a second. Each call by the reader is a heartbeat.
  Turn wait_for(std::size_t step, const std::atomic<bool>& cancelled);

  // Makes another warmer the reader. Called when nothing more will be read.
  void resign();

  struct Report {
    bool was_reader = false;
    std::uint64_t takeovers = 0;         // 1 if it became the reader after waiting
    std::uint64_t bytes_read = 0;        // of steps that were not cached in the beginning
    std::uint64_t bytes_waited_for = 0;  // that another reader read meanwhile
    std::string why_alone;               // the reason why this one reads for itself; else empty
  };
  Report report() const;

 private:
  bool is_cached(const ByteRange& step) const;
  // Adds a step that was not cached in the beginning to the bytes of the process that reads.
  void count(std::size_t step);
  // Returns true if this warmer may read; tries to become the reader.
  bool may_read(bool has_waited);
  void give_sign_of_life();
  // Requires the mutex. True if the reader's last heartbeat is older than the patience.
  bool is_reader_silent();

  const Sources& sources_;
  const mmap::Mapping& mapping_;
  const std::span<const ByteRange> steps_;
  std::vector<bool> was_cached_;  // each step, in the beginning; constant after the constructor
  const std::string lock_name_;
  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  // Protected by the mutex.
  std::optional<os::RuntimeDirectory> directory_;
  std::optional<os::ProcessLock> lock_;
  std::int64_t last_sign_ = 0;                       // the reader's last heartbeat
  std::chrono::steady_clock::time_point sign_seen_;  // when that was first seen
  Report report_;
};

}  // namespace weightmap
