// A .npy array: its header with dtype, order and shape, as numpy writes them in front of the
// elements (numpy/lib/format.py), how long the elements are, and the array as a tensor of a list.
//
//   "\x93NUMPY" | major | minor | length, u16 in version 1, else u32 | length bytes of text
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// The text is a Python literal, of which only what numpy writes is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/format/own_storages.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::npz {

struct ArrayHeader {
  DType dtype = DType::uint8;
  // Of an array that no tensor is: its type as the header has it, as "<U6", ">f4" or the text of a
  // structure, and what this means, for a sentence about the field "descr".
  std::string foreign_type = {};
  std::string foreign_reason = {};
  bool is_fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t length = 0;  // of the whole header: where the elements begin
};

// Up to the field `length`, which tells how long the header is.
inline constexpr std::size_t preamble_bytes = 12;

// The length of the whole header, by the first bytes of an array: preamble_bytes, or all there are.
// Fails with corrupt where they are no .npy array, with unsupported for another version, with
// limit_exceeded for a text longer than 65535 bytes, which numbers never have.
Result<std::uint64_t> header_length(std::span<const std::byte> front);

// `header`: as many bytes as header_length() says. Fails with corrupt for another text than the
// above, with limit_exceeded for more than `most_dims` dimensions. Errors name the field and have
// positions in the header.
Result<ArrayHeader> read_header(std::span<const std::byte> header, std::uint32_t most_dims);

// The bytes of all elements: where the array ends behind its header. Fails with unsupported for a
// type that is not known, with corrupt for more than 64 bits count.
Result<std::uint64_t> elements_bytes(const ArrayHeader& header);

// Adds the sizes and strides of an array to `list`, and returns its tensor, of which `begin` is 0
// and `end` the bytes of its elements. OpenOptions::dtypes tells the type of an opaque one; fails
// with invalid_argument if that has another size, with corrupt if a product does not fit.
// Precondition: the type is not foreign.
Result<format::ListedTensor> list_array(std::string_view name, const ArrayHeader& header,
                                        const OpenOptions& options, format::TensorList& list);

}  // namespace weightmap::npz
