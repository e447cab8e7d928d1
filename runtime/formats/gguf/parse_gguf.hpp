// Parses GGUF, the format of ggml and llama.cpp, versions 2 and 3, in either byte order: counts,
// keys and values, a description of each tensor, and the bytes of the tensors, each at a multiple
// of an alignment (github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp).
//
// It refuses what ggml's own reader refuses, in arithmetic that cannot overflow. In addition it
// reads arrays of arrays, more than four dimensions, and a file without padding behind its last
// tensor. docs/format.md has the rules.
#pragma once

#include "runtime/formats/format/format.hpp"

namespace weightmap::gguf {

// See FormatRow::parse. The value tree is the dict of its metadata.
Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::gguf
