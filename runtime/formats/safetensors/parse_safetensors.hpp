// Parses the safetensors format: eight bytes with the length of the header, the header, which is
// JSON, and the bytes of the tensors, one after another (github.com/huggingface/safetensors,
// safetensors/src/tensor.rs).
//
// It refuses what the format's own library refuses, and also input that the library accepts
// although readers may interpret it in two ways: a repeated name or field, a tensor that is not
// described by an object. docs/format.md has the rules.
#pragma once

#include "runtime/formats/format/format.hpp"

namespace weightmap::safetensors {

// See FormatRow::parse. The value tree is the dict `__metadata__`, empty without one.
Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::safetensors
