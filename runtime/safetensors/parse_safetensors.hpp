// The safetensors format: eight bytes with the length of the header, the header, which is JSON, and
// the bytes of the tensors, one behind the other
// (github.com/huggingface/safetensors, safetensors/src/tensor.rs).
//
// What the format's own library refuses is refused, and besides what it lets pass although readers
// may take it in two ways: a name or a field that comes twice, a tensor that is not described by an
// object. docs/format.md has the rules.
#pragma once

#include "runtime/format/format.hpp"

namespace weightmap::safetensors {

// See FormatRow::parse. The value tree is the dict `__metadata__`, empty without one.
Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::safetensors
