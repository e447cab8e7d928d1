// Seeds for tables whose keys come from a file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weightmap::bytes {

// Returns a different number each time, which the author of a file cannot predict: it mixes the
// time and memory addresses. Not for secrets.
inline std::uint64_t fresh_seed() noexcept {
  static std::atomic<std::uint64_t> count{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::uint64_t seed = static_cast<std::uint64_t>(now) ^ reinterpret_cast<std::uintptr_t>(&now);
  seed += (++count ^ reinterpret_cast<std::uintptr_t>(&count)) * 0x9E3779B97F4A7C15;
  seed = (seed ^ (seed >> 32)) * 0xD6E8FEB86659FD93;
  return seed ^ (seed >> 32);
}

}  // namespace weightmap::bytes
