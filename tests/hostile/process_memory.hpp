// What this process has: memory at its peak, descriptors, mappings of a file.
#pragma once

#include <cstdint>
#include <string>

namespace weightmap::test {

// Whether memory is a sanitizer's, which reserves terabytes for its shadow.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool is_sanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool is_sanitized = false;
#endif

// Counts from its construction on. The system keeps one peak for the process, so of several in one
// process the last one counts.
class PeakMemory {
 public:
  PeakMemory();
  // Resident bytes at the peak since then, beyond those at the beginning. Under a sanitizer its own
  // memory counts, too. 0 where the peak cannot be set back.
  std::uint64_t grown() const;

 private:
  std::uint64_t before_ = 0;
  bool is_known_ = false;
};

struct Handles {
  std::uint64_t descriptors = 0;
  std::uint64_t mappings = 0;  // of the file
};
Handles open_handles(const std::string& path);

}  // namespace weightmap::test
