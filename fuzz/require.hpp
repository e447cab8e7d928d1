// Requires an invariant; a violation is a finding, whose input libFuzzer keeps.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace weightmap::fuzz {

inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

}  // namespace weightmap::fuzz
