// The entry point of a target, WEIGHTMAP_FUZZ_TARGET(function of the bytes), and what it requires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace weightmap::fuzz {

// Requires an invariant; a violation is a finding, whose input libFuzzer keeps.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

}  // namespace weightmap::fuzz

#define WEIGHTMAP_FUZZ_TARGET(check)                                                  \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    check(std::as_bytes(std::span<const std::uint8_t>(data, size)));                  \
    return 0;                                                                         \
  }
