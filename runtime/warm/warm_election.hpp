// Which of several processes that warm one checkpoint reads it, and how the others wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "mmap/mapping.hpp"
#include "runtime/bytes/byte_range.hpp"
#include "runtime/checkpoint/sources.hpp"
#include "runtime/os/process/process_lock.hpp"
#include "runtime/os/process/runtime_directory.hpp"

namespace weightmap {

// One for each warmer, shared by its threads. The files and the mapping must outlive it.
class WarmElection {
 public:
  // `patience`: how long the reader may give no sign of life.
  WarmElection(const Sources& sources, const mmap::Mapping& mapping,
               std::chrono::milliseconds patience);

  enum class Turn : std::uint8_t {
    map,   // it is cached: bringing it in needs no disk
    read,  // this warmer is the reader, or nobody can be elected
    stop,  // cancelled
  };
  // Blocks until the range is cached, or this warmer may read it, or `cancelled` is set. While it
  // waits it looks 50 to 1000 times a second. Each call by the reader is its sign of life.
  Turn wait_for(const ByteRange& range, const std::atomic<bool>& cancelled);

  // Lets another be the reader. For when nothing more is brought in.
  void resign();

  struct Report {
    bool was_reader = false;
    std::uint64_t takeovers = 0;         // 1 if it became the reader after it had waited
    std::uint64_t bytes_read = 0;        // which were not cached when their turn came
    std::uint64_t bytes_waited_for = 0;  // read by another meanwhile
    std::string why_alone;               // why this one reads for itself; else empty
  };
  Report report() const;

 private:
  // Whether this warmer may read; tries to become the reader.
  bool may_read(bool has_waited);
  void give_sign_of_life();
  // Under the mutex: whether the reader has been silent for longer than there is patience.
  bool is_reader_silent();

  const Sources& sources_;
  const mmap::Mapping& mapping_;
  const std::string lock_name_;
  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  // Under the mutex.
  std::optional<os::RuntimeDirectory> directory_;
  std::optional<os::ProcessLock> lock_;
  std::int64_t last_sign_ = 0;                       // of the reader's life
  std::chrono::steady_clock::time_point sign_seen_;  // when that was first seen
  Report report_;
};

}  // namespace weightmap
