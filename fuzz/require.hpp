// What must hold of every input; what does not is a finding, which libFuzzer keeps the input of.
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
