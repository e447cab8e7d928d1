// Formats in which each tensor has bytes of its own, which have its name: the list of what a header
// says of them, and the catalog of that.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/catalog/catalog.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

struct ListedTensor {
  std::string_view name;
  std::uint64_t begin;  // of its bytes, behind the header
  std::uint64_t end;
  std::uint64_t position;   // of its description, in the header
  std::uint32_t first_dim;  // of TensorList::dims: `rank` sizes, then as many strides
  DType dtype;
  std::uint8_t rank;
  bool is_viewable;          // false: of a type that has no elements of whole bytes
  std::uint32_t crc32 = 0;   // of the bytes; 0: unknown
  std::uint32_t source = 0;  // 1: behind the file, see CompressedStorage
};

struct TensorList {
  explicit TensorList(std::pmr::memory_resource& memory) : tensors(&memory), dims(&memory) {}

  std::pmr::vector<ListedTensor> tensors;  // by where they begin
  std::pmr::vector<std::int64_t> dims;
  std::uint64_t data_begin = 0;  // in the file
  bool is_big_endian = false;
};

// Of those that are viewable. Fails for a name that comes twice. Errors have positions in the
// header.
Result<catalog::Catalog> make_catalog(const TensorList& list, std::pmr::memory_resource& memory);

// The largest power of two, up to a page, that all storages begin at a multiple of.
std::uint64_t common_alignment(const catalog::Catalog& catalog);

}  // namespace weightmap::format
