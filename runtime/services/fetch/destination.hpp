// Where the bytes of a file go that is fetched: memory, or a file on a disk.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "runtime/base/bytes/byte_range.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// The functions are each called by one thread, the last three by the same.
class Destination {
 public:
  virtual ~Destination() = default;
  // Makes memory_for() of this range faster. Returns false if nothing was left to do.
  virtual bool prepare(ByteRange range) = 0;
  // Returns memory of this length for the bytes of the range, which the caller uses until
  // take_back(). nullopt if there is none before other ranges are kept. Fails with io if the system
  // has none.
  virtual Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) = 0;
  // Puts the bytes in their place; `bytes` is the memory of memory_for(), or a part of it. Fails
  // with io if the system refuses.
  virtual Result<void> keep(ByteRange range, std::span<std::byte> bytes) = 0;
  // Takes the memory of memory_for() back, once all of it was kept, or could not be.
  virtual void take_back(ByteRange /*range*/, std::span<std::byte> /*bytes*/) {}
  // Called when there is nothing to keep: what was kept may be made safe. Fails as keep() does.
  virtual Result<void> settle() { return {}; }
};

}  // namespace weightmap
