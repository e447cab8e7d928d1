// How much each checkpoint of this process may lock in memory, so that all of them together leave
// the system its reserve.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/system/memory/memory_limit.hpp"

namespace weightmap::os {

// What one checkpoint has locked, and was promised. Members may be called from any thread.
class LockShare {
 public:
  LockShare() = default;
  LockShare(const LockShare&) = delete;
  LockShare& operator=(const LockShare&) = delete;
  ~LockShare();  // when its memory is unlocked

  // Returns how many bytes from the beginning of the file may be locked, and promises as many of
  // `wanted`: those that it has locked count as free, those that other shares were promised do not.
  // So all shares together stay within usable(), however often and in whatever order they ask.
  std::uint64_t promise(std::uint64_t wanted, const std::function<MemoryLimit()>& limit);
  // So many bytes from the beginning are locked, on the way to what was promised.
  void locked(std::uint64_t bytes);
  // No more will be locked of what was promised.
  void finish();

 private:
  std::uint64_t locked_ = 0;
  std::uint64_t promised_ = 0;  // at least what is locked
};

}  // namespace weightmap::os
