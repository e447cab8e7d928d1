// A file that is a pickle, of pickle.dump() or joblib.dump(). Its tensors are the arrays of numpy
// whose elements lie in it.
#pragma once

#include <memory_resource>

#include "runtime/formats/format/format.hpp"

namespace weightmap::torch {

// Reads the file up to STOP into memory, and calls nothing. Fails as parse_archive() does.
Result<format::Parsed> parse_pickle(format::Input& input, const OpenOptions& options,
                                    OpenStats& stats, std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
