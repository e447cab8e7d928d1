// Reads of a file that are under way at the same time, and keeping as many as pay under way.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "mmap/read_depth.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

struct QueuedRead {
  std::uint64_t offset;
  std::span<std::byte> memory;  // belongs to the queue until the read has ended
};

struct EndedRead {
  QueuedRead read;
  bool past_cache;  // the page cache was not filled
  std::chrono::steady_clock::time_point when;
};

// Used by one thread.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  // Does not wait for anything.
  virtual void begin(const QueuedRead& read) = 0;
  // Waits until one of the reads has ended, in whatever order they do. Fails as that read did.
  // Precondition: one is under way.
  virtual Result<EndedRead> next() = 0;
};

// A multiple of every page size.
inline constexpr std::uint64_t queued_bytes = std::uint64_t{2} << 20;

struct ReadSteps {
  // Answers the memory that a piece is to be read into, and has time for what it takes to get that:
  // the reads before are under way. Empty if the piece is there already.
  std::function<Result<std::span<std::byte>>(std::uint64_t offset, std::uint64_t length)> prepare;
  std::function<Result<void>(const EndedRead&)> ended;
};

// Reads the first `size` bytes in pieces of queued_bytes. A read that ends makes room for the next
// at once. Ends at the first error, when reads may still be under way.
Result<void> read_ahead(ReadQueue& queue, ReadDepth depth, std::uint64_t size,
                        const ReadSteps& steps);

}  // namespace weightmap::os
