// What a GGUF file has before the bytes of its tensors: counts, metadata, and of each tensor what
// it is and where its bytes are.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "runtime/bytes/read_cache.hpp"
#include "runtime/format/own_storages.hpp"
#include "runtime/gguf/metadata.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

// Its data_begin is the next multiple of the alignment behind `end`; names are in a window, and
// positions in the file.
struct Header : format::TensorList {
  using TensorList::TensorList;

  std::uint32_t version = 0;
  Metadata metadata;
  std::uint64_t end = 0;         // of the descriptions
  std::uint64_t data_bytes = 0;  // with the padding between tensors, not with that behind the last
  std::uint64_t unread_bytes = 0;  // behind that
};

// Reads all of it, and proves of each tensor that its bytes are as many as its type and shape need,
// begin where those of the tensor before it end, and lie in the file. Valid as long as `cache`.
// Names that come twice are for the caller to see.
Result<void> read_header(Header& header, bytes::ReadCache& cache, const Limits& limits,
                         std::pmr::memory_resource& memory);

}  // namespace weightmap::gguf
