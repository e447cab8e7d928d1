// The header of a .npy array: dtype, order and shape, as numpy writes them in front of the elements
// (numpy/lib/format.py).
//
//   "\x93NUMPY" | major | minor | length, u16 in version 1, else u32 | length bytes of text
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// The text is a Python literal, of which only what numpy writes is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightmap/dtype.hpp"
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

}  // namespace weightmap::npz
