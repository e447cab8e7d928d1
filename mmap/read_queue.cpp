#include "mmap/read_queue.hpp"

#include <algorithm>

#include "runtime/base/try.hpp"

namespace weightmap::os {

Result<void> read_ahead(ReadQueue& queue, ReadDepth depth, std::uint64_t size,
                        const ReadSteps& steps) {
  unsigned under_way = 0;
  const auto end_one = [&]() -> Result<void> {
    TRY_ASSIGN(const EndedRead ended, queue.next());
    --under_way;
    depth.ended(ended.read.memory.size(), ended.when);
    return steps.ended(ended);
  };
  for (std::uint64_t at = 0; at < size; at += queued_bytes) {
    while (under_way >= depth.now()) TRY(end_one());
    TRY_ASSIGN(const std::span<std::byte> memory,
               steps.prepare(at, std::min(queued_bytes, size - at)));
    if (memory.empty()) continue;
    queue.begin({at, memory});
    ++under_way;
  }
  while (under_way > 0) TRY(end_one());
  return {};
}

}  // namespace weightmap::os
