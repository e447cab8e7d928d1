#include "tools/cat/number_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weightmap::cli {
namespace {

constexpr int max_places = 8;

// A column with numbers from here on uses powers of ten: the digits before the point would exceed
// the type's precision.
double array_limit(DType dtype) {
  return dtype == DType::float64 ? 1e8 : dtype == DType::float32 ? 1e6 : 1e3;
}

// The same limit for a single number.
double scalar_limit(DType dtype) { return dtype == DType::float64 ? 1e16 : array_limit(dtype); }

// A number split at its point and at its 'e'.
struct Parts {
  std::string whole;  // with the sign
  std::string places;
  std::string power;  // digits only
  bool negative_power = false;
};

// Formats a column of real numbers to one width.
class RealColumn {
 public:
  RealColumn(DType dtype, const std::vector<Real>& values, bool show_plus)
      : show_plus_(show_plus), powers_(wants_powers(dtype, values)) {
    bool special = false;
    bool negative_infinity = show_plus;
    for (const Real& value : values) {
      if (std::isfinite(value.value)) {
        measure(split(value));
        continue;
      }
      special = true;
      negative_infinity |= std::isinf(value.value) && value.value < 0;
    }
    if (special) widen_for_words(negative_infinity);
  }

  std::string word(const Real& real) const {
    if (!std::isfinite(real.value)) return padded(special_word(real.value));
    const Parts parts = powers_ ? split_at_power(real, places_) : split_at_point(real);
    if (!powers_) return fmt::format("{:>{}}.{:<{}}", parts.whole, left_, parts.places, places_);
    return fmt::format("{:>{}}.{:0<{}}e{}{:0>{}}", parts.whole, left_, parts.places, places_,
                       parts.negative_power ? '-' : '+', parts.power, power_);
  }

 private:
  static bool wants_powers(DType dtype, const std::vector<Real>& values) {
    double largest = 0;
    double smallest = 0;
    for (const Real& real : values) {
      const double size = std::abs(real.value);
      if (size == 0 || !std::isfinite(size)) continue;
      largest = std::max(largest, size);
      smallest = smallest == 0 ? size : std::min(smallest, size);
    }
    if (largest == 0) return false;
    // Computed in the elements' own type, as numpy compares them.
    return largest >= array_limit(dtype) || smallest < rounded(dtype, 1e-4) ||
           rounded(dtype, largest / smallest) > 1000;
  }

  std::string sign(double value) const { return std::signbit(value) ? "-" : show_plus_ ? "+" : ""; }

  Parts split(const Real& real) const {
    return powers_ ? split_at_power(real, 0) : split_at_point(real);
  }

  // Splits a number with at least `places` digits after the first; further digits are exact, not
  // zeros.
  Parts split_at_power(const Real& real, std::size_t places) const {
    Decimal d = real.digits;
    if (d.digits.size() > max_places + 1) d = scientific(real.value, max_places);
    if (d.digits.size() < places + 1) d = scientific(real.value, static_cast<int>(places));
    return {sign(real.value) + d.digits.substr(0, 1), d.digits.substr(1),
            fmt::format("{:02}", std::abs(d.exponent)), d.exponent < 0};
  }

  Parts split_at_point(const Real& real) const {
    Decimal d = real.digits;
    if (static_cast<int>(d.digits.size()) - 1 - d.exponent > max_places)
      d = fixed(real.value, max_places);
    const std::string zeros(static_cast<std::size_t>(std::max(0, -d.exponent)), '0');
    std::string digits = zeros + d.digits;
    const auto whole = static_cast<std::size_t>(std::max(0, d.exponent)) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    std::string places = digits.substr(whole);
    places.erase(places.find_last_not_of('0') + 1);
    return {sign(real.value) + digits.substr(0, whole), places, "", false};
  }

  void measure(const Parts& parts) {
    left_ = std::max(left_, parts.whole.size());
    places_ = std::max(places_, parts.places.size());
    power_ = std::max(power_, parts.power.size());
  }

  std::size_t right() const { return places_ + (powers_ ? power_ + 2 : 0); }

  void widen_for_words(bool negative_infinity) {
    const std::size_t longest = negative_infinity ? 4 : 3;
    if (left_ + right() + 1 < longest) left_ = longest - right() - 1;
  }

  std::string special_word(double value) const {
    if (std::isnan(value)) return show_plus_ ? "+nan" : "nan";
    return value < 0 ? "-inf" : show_plus_ ? "+inf" : "inf";
  }

  std::string padded(const std::string& text) const {
    return fmt::format("{:>{}}", text, left_ + right() + 1);
  }

  bool show_plus_;
  bool powers_;
  std::size_t left_ = 0;
  std::size_t places_ = 0;
  std::size_t power_ = 0;
};

std::vector<std::string> real_words(const Elements& elements) {
  std::vector<Real> values;
  for (std::size_t i = 0; i < elements.size(); ++i) values.push_back(elements.real(i));
  const RealColumn column(elements.dtype, values, false);
  std::vector<std::string> words;
  for (const Real& value : values) words.push_back(column.word(value));
  return words;
}

// Puts 'j' before the spaces that pad the imaginary part.
std::string with_j(std::string imaginary) {
  imaginary.insert(imaginary.find_last_not_of(' ') + 1, "j");
  return imaginary;
}

std::vector<std::string> complex_words(const Elements& elements) {
  std::vector<Real> real;
  std::vector<Real> imaginary;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    real.push_back(elements.half(i, false));
    imaginary.push_back(elements.half(i, true));
  }
  const DType dtype = real_type(elements.dtype);
  const RealColumn left(dtype, real, false);
  const RealColumn right(dtype, imaginary, true);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < real.size(); ++i)
    words.push_back(left.word(real[i]) + with_j(right.word(imaginary[i])));
  return words;
}

std::vector<std::string> integer_words(const Elements& elements) {
  std::vector<std::string> words;
  std::size_t width = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    words.push_back(elements.integer(i));
    width = std::max(width, words.back().size());
  }
  for (std::string& word : words) word = fmt::format("{:>{}}", word, width);
  return words;
}

std::vector<std::string> boolean_words(const Elements& elements) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < elements.size(); ++i)
    words.push_back(elements.boolean(i) ? " True" : "False");
  return words;
}

bool needs_power(double value, double limit) {
  const double size = std::abs(value);
  return size != 0 && (size < 1e-4 || size >= limit);
}

std::string plain_word(const Real& real, double limit, bool show_plus) {
  const std::string plus = show_plus ? "+" : "";
  if (std::isnan(real.value)) return plus + "nan";
  const std::string sign = std::signbit(real.value) ? "-" : plus;
  if (std::isinf(real.value)) return sign + "inf";
  return sign + plain(real.digits, needs_power(real.value, limit));
}

std::string json_number(const Real& real) {
  const std::string word = plain_word(real, 1e16, false);
  return std::isfinite(real.value) ? word : "\"" + word + "\"";
}

// Like Python, prints (1+2j), and 2j if the real part is a positive zero; integers have no point.
std::string complex_scalar(const Elements& elements) {
  const double limit = scalar_limit(real_type(elements.dtype));
  const auto bare = [](std::string word) {
    if (word.ends_with(".0")) word.resize(word.size() - 2);
    return word;
  };
  const Real real = elements.half(0, false);
  const Real imaginary = elements.half(0, true);
  if (real.value == 0 && !std::signbit(real.value))
    return bare(plain_word(imaginary, limit, false)) + "j";
  return "(" + bare(plain_word(real, limit, false)) + bare(plain_word(imaginary, limit, true)) +
         "j)";
}

}  // namespace

std::vector<std::string> words_of(const Elements& elements) {
  switch (kind_of(elements.dtype)) {
    case ElementKind::boolean:
      return boolean_words(elements);
    case ElementKind::real:
      return real_words(elements);
    case ElementKind::complex:
      return complex_words(elements);
    case ElementKind::integer:
      break;
  }
  return integer_words(elements);
}

std::string scalar_word(const Elements& elements) {
  switch (kind_of(elements.dtype)) {
    case ElementKind::boolean:
      return elements.boolean(0) ? "True" : "False";
    case ElementKind::real:
      return plain_word(elements.real(0), scalar_limit(elements.dtype), false);
    case ElementKind::complex:
      return complex_scalar(elements);
    case ElementKind::integer:
      break;
  }
  return elements.integer(0);
}

std::string json_word(const Elements& elements, std::size_t index) {
  switch (kind_of(elements.dtype)) {
    case ElementKind::boolean:
      return elements.boolean(index) ? "true" : "false";
    case ElementKind::real:
      return json_number(elements.real(index));
    case ElementKind::complex:
      return "[" + json_number(elements.half(index, false)) + "," +
             json_number(elements.half(index, true)) + "]";
    case ElementKind::integer:
      break;
  }
  return elements.integer(index);
}

}  // namespace weightmap::cli
