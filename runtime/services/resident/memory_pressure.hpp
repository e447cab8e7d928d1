// Follows what the machine, and the cgroups of this process, have left.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "weightmap/result.hpp"

namespace weightmap {

class MemoryPressure {
 public:
  // Returns what may be used, if `used` is: less if processes wait for memory, but what one call
  // has `needed`, since the waits of others do not end by its failure.
  // `root` as of os::memory_limit().
  static std::uint64_t budget_for(std::uint64_t used, std::uint64_t needed,
                                  const std::filesystem::path& root = "/") noexcept;
  // Likewise, if so many bytes can be had, and processes wait for so many percent of the time.
  static std::uint64_t budget_within(std::uint64_t available, double waiting, std::uint64_t used,
                                     std::uint64_t needed) noexcept;

  // Calls `look` four times a second, in a thread of its own.
  explicit MemoryPressure(std::function<void()> look) : look_(std::move(look)) {}
  MemoryPressure(const MemoryPressure&) = delete;
  MemoryPressure& operator=(const MemoryPressure&) = delete;
  ~MemoryPressure();
  // Fails with io if the system refuses.
  Result<void> start();

 private:
  void run();

  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;  // protected by the mutex
  std::thread thread_;
};

}  // namespace weightmap
