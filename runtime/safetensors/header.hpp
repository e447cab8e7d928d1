// The header of a safetensors file: JSON text that says of each tensor what it is and where its
// bytes are.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/json/reader.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::safetensors {

struct HeaderTensor {
  std::string_view name;  // of Header::json
  std::uint64_t begin;    // of its bytes, behind the header
  std::uint64_t end;
  std::uint32_t first_dim;  // of Header::dims: `rank` sizes, then as many strides
  std::uint32_t position;   // of the name, in the text
  DType dtype;
  std::uint8_t rank;
  bool is_viewable;  // false: of a type that has no elements of whole bytes
};

struct Header {
  // Valid as long as `text` and this.
  Header(std::string_view text, std::pmr::memory_resource& memory)
      : json(text), tensors(&memory), dims(&memory) {}

  json::Reader json;
  std::pmr::vector<HeaderTensor> tensors;  // by where they begin
  std::pmr::vector<std::int64_t> dims;
  std::unique_ptr<value::Tree> metadata;  // a dict of strings
};

// Reads all of the header, proves of each tensor that its bytes are as many as its type and shape
// need, and that the tensors follow one another without a gap and end with the `data_bytes` bytes.
// Errors have positions in the text.
Result<void> read_header(Header& header, std::uint64_t data_bytes, const Limits& limits,
                         std::pmr::memory_resource& memory);

}  // namespace weightmap::safetensors
