// Single elements of a tensor, in the form of gather(), and the digits of floating point numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// digits d1 d2 d3 ... and exponent e mean d1.d2d3... x 10^e. No trailing zeros; zero is "0", 0.
struct Decimal {
  std::string digits = "0";
  int exponent = 0;
};

// Returns the fewest digits that identify |value| among all values of its type.
Decimal shortest(float value);
Decimal shortest(double value);
// Does the same for a type given by the neighbours of `value`; all three are finite and not
// negative. A number half way between two values identifies the one that is `even`.
Decimal shortest(double value, double below, double above, bool even);

// Returns |value| rounded to this many digits after the point, or after the first digit.
Decimal fixed(double value, int places);
Decimal scientific(double value, int places);

// Returns "0.1", "3.0", or with a power of ten "1e-01", "3e+00", without a sign.
std::string plain(const Decimal& decimal, bool power);

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
