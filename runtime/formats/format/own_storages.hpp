// The tensor list and the catalog of formats in which each tensor has its own bytes.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/base/catalog/catalog.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

struct ListedTensor {
  std::string_view name;
  std::uint64_t begin;  // of its bytes, relative to the end of the header
  std::uint64_t end;
  std::uint64_t position;   // of its description, in the header
  std::uint32_t first_dim;  // of TensorList::dims: `rank` sizes, then as many strides
  DType dtype;
  std::uint8_t rank;
  bool is_viewable;          // false: the type's elements are not whole bytes
  std::uint32_t crc32 = 0;   // of the bytes; 0: unknown
  std::uint32_t source = 0;  // 1: behind the file, see CompressedStorage
};

struct TensorList {
  explicit TensorList(std::pmr::memory_resource& memory) : tensors(&memory), dims(&memory) {}

  std::pmr::vector<ListedTensor> tensors;  // in the order of their bytes
  std::pmr::vector<std::int64_t> dims;
  std::uint64_t data_begin = 0;  // in the file
  bool is_big_endian = false;
};

// Makes the catalog of the viewable tensors. Fails for a repeated name. Errors refer to the header.
Result<catalog::Catalog> make_catalog(const TensorList& list, std::pmr::memory_resource& memory);

// The largest power of two, up to a page, that all storages begin at a multiple of.
std::uint64_t common_alignment(const catalog::Catalog& catalog);

}  // namespace weightmap::format
