// The digits of a floating point number.
#pragma once

#include <string>

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

}  // namespace weightmap::cli
