// Single elements of a tensor, in the form of gather().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/cat/decimal.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// A real number of any floating point type, or one half of a complex one.
struct Real {
  double value;    // exact
  Decimal digits;  // shortest for its type; meaningless unless finite
};

enum class ElementKind : std::uint8_t { boolean, integer, real, complex };
// Quantized and packed types count as integers: the stored number is printed.
ElementKind kind_of(DType dtype) noexcept;

// Elements in this machine's byte order, row-major.
struct Elements {
  DType dtype;
  std::vector<std::byte> bytes;

  std::size_t size() const noexcept { return bytes.size() / element_size(dtype); }
  bool boolean(std::size_t index) const noexcept;  // any byte but 0 is true
  std::string integer(std::size_t index) const;    // exact, whatever the width
  Real real(std::size_t index) const;
  Real half(std::size_t index, bool imaginary) const;  // of a complex number
};

// Rounds `value` >= 0 to the real type `dtype`, as if the exponent had no maximum.
double rounded(DType dtype, double value) noexcept;

// Returns float32 for complex64 and so on; any other dtype unchanged.
DType real_type(DType dtype) noexcept;

}  // namespace weightmap::cli
