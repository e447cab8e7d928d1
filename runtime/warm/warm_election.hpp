// Which of several processes that warm one checkpoint reads it, and how the others wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "mmap/mapping.hpp"
#include "mmap/process/process_lock.hpp"
#include "mmap/process/runtime_directory.hpp"
#include "runtime/bytes/byte_range.hpp"
#include "runtime/checkpoint/sources.hpp"

namespace weightmap {

// One for each warmer, shared by its threads. The files and the mapping must outlive it.
class WarmElection {
 public:
  WarmElection(const Sources& sources, const os::Mapping& mapping);

  enum class Turn : std::uint8_t {
    map,   // it is cached: bringing it in needs no disk
    read,  // this warmer is the reader, or nobody can be elected
    stop,  // cancelled
  };
  // Blocks until the range is cached, or this warmer is the reader, or `cancelled` is set. While it
  // waits it looks 50 to 1000 times a second.
  Turn wait_for(const ByteRange& range, const std::atomic<bool>& cancelled);

  // Lets another be the reader. For when nothing more is brought in.
  void resign();

  struct Report {
    bool was_reader = false;
    std::uint64_t takeovers = 0;         // 1 if it became the reader after it had waited
    std::uint64_t bytes_read = 0;        // which were not cached when their turn came
    std::uint64_t bytes_waited_for = 0;  // read by another meanwhile
    std::string why_alone;               // why nobody can be elected; else empty
  };
  Report report() const;

 private:
  // Whether this warmer may read; tries to become the reader.
  bool may_read(bool has_waited);

  const Sources& sources_;
  const os::Mapping& mapping_;
  const std::string lock_name_;
  mutable std::mutex mutex_;
  // Under the mutex.
  std::optional<os::RuntimeDirectory> directory_;
  std::optional<os::ProcessLock> lock_;
  Report report_;
};

}  // namespace weightmap
