// What stands before the elements of a .npy file, read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Parses the text of the header: a Python dict with exactly these three keys, in any order. Fails
// with invalid_argument for anything else, structured types included.
Result<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace weightmap::cli
