// Opens one file at one level and does with it whatever a program could do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/expectation.hpp"
#include "weightmap/options.hpp"

namespace weightmap::test {

struct FileReport {
  std::vector<std::string> complaints;  // empty if the file was treated as the manifest says
  std::uint64_t sum = 0;                // of all that was read, so that no read is optimised away
};

FileReport check_file(const HostileFile& file, Verify level);

}  // namespace weightmap::test
