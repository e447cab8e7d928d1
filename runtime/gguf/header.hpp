// What a GGUF file has before the bytes of its tensors: counts, metadata, and of each tensor what
// it is and where its bytes are.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/bytes/windows.hpp"
#include "runtime/gguf/metadata.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

struct HeaderTensor {
  std::string_view name;  // in a window
  std::uint64_t begin;    // of its bytes, behind Header::data_begin
  std::uint64_t nbytes;
  std::uint64_t position;   // of its description, in the file
  std::uint32_t first_dim;  // of Header::dims: `rank` sizes, then as many strides
  DType dtype;
  std::uint8_t rank;
};

struct Header {
  explicit Header(std::pmr::memory_resource& memory) : tensors(&memory), dims(&memory) {}

  std::uint32_t version = 0;
  bool is_big_endian = false;
  Metadata metadata;
  std::pmr::vector<HeaderTensor> tensors;  // in the order of their bytes
  std::pmr::vector<std::int64_t> dims;
  std::uint64_t end = 0;         // of the descriptions
  std::uint64_t data_begin = 0;  // the next multiple of the alignment
  std::uint64_t data_bytes = 0;  // with the padding between tensors, not with that behind the last
  std::uint64_t unread_bytes = 0;  // behind that
};

// Reads all of it, and proves of each tensor that its bytes are as many as its type and shape need,
// begin where those of the tensor before it end, and lie in the file. Valid as long as `windows`.
// Names that come twice are for the caller to see.
Result<void> read_header(Header& header, bytes::Windows& windows, const Limits& limits,
                         std::pmr::memory_resource& memory);

}  // namespace weightmap::gguf
