// The entry point of a target: WEIGHTMAP_FUZZ_TARGET(function of the bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#define WEIGHTMAP_FUZZ_TARGET(check)                                                  \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    check(std::as_bytes(std::span<const std::uint8_t>(data, size)));                  \
    return 0;                                                                         \
  }
