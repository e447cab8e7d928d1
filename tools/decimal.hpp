// The digits of a floating point number.
#pragma once

#include <string>

namespace weightmap::cli {

// digits d1 d2 d3 ... and exponent e say d1.d2d3... x 10^e. No trailing zeros; zero is "0", 0.
struct Decimal {
  std::string digits = "0";
  int exponent = 0;
};

// The fewest digits that name |value| among all values of its type.
Decimal shortest(float value);
Decimal shortest(double value);
// The same for a type given by the neighbours of `value`; all three finite and not negative.
Decimal shortest(double value, double below, double above);

// |value| rounded to this many digits after the point, or after the first digit.
Decimal fixed(double value, int places);
Decimal scientific(double value, int places);

// "0.1", "3.0", "1e-05": what Python prints for a float of these digits. No sign.
std::string plain(const Decimal& decimal);

}  // namespace weightmap::cli
