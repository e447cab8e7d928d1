// The header of a GGUF file: counts, metadata, and the description of each tensor.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/gguf/metadata.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

// data_begin is the next multiple of the alignment behind `end`; names point into a window, and
// positions are offsets in the file.
struct Header : format::TensorList {
  using TensorList::TensorList;

  std::uint32_t version = 0;
  Metadata metadata;
  std::uint64_t end = 0;           // of the descriptions
  std::uint64_t data_bytes = 0;    // with the padding between tensors, without that behind the last
  std::uint64_t unread_bytes = 0;  // behind the data
};

// Reads the header, and proves for each tensor that its bytes fit its type and shape, begin where
// those of the previous tensor end, and lie in the file. Valid as long as `windows`. The caller
// checks for repeated names.
Result<void> read_header(Header& header, bytes::ReadCache& cache, const Limits& limits,
                         std::pmr::memory_resource& memory);

}  // namespace weightmap::gguf
