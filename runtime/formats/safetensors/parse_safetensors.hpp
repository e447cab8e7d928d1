// Parses the safetensors format: eight bytes with the length of the header, the header, which is
// JSON, and the bytes of the tensors, one after another (github.com/huggingface/safetensors,
// safetensors/src/tensor.rs).
//
// It refuses what the format's own library refuses, and also input that the library accepts
// although readers may interpret it in two ways: a repeated name or field, a tensor that is not
// described by an object. docs/format.md has the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string_view>

#include "runtime/base/json/token_reader.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::safetensors {

// The header: JSON text with each tensor and the place of its bytes.

using HeaderTensor = format::ListedTensor;  // its position is that of the name, in the text

struct Header : format::TensorList {
  // Valid as long as `text` and this object.
  Header(std::string_view text, std::pmr::memory_resource& memory)
      : TensorList(memory), json(text) {}

  json::TokenReader json;                 // owns the names
  std::unique_ptr<value::Tree> metadata;  // a dict of strings
};

// Reads the header, proves that each tensor's bytes fit its type and shape, and that the tensors
// follow one another without a gap and fill exactly `data_bytes`. Errors refer to the text.
Result<void> read_header(Header& header, std::uint64_t data_bytes, const Limits& limits,
                         std::pmr::memory_resource& memory);

// See FormatRow::parse. The value tree is the dict `__metadata__`, empty without one.
Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory);

}  // namespace weightmap::safetensors
