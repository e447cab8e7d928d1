#include "tools/cat/npy.hpp"

#include <bit>
#include <limits>

#include "runtime/base/element_format.hpp"
#include "weightmap/half.hpp"

namespace weightmap::cli {
namespace {

// Formats a Python tuple: (), (4,), (4, 4).
std::string tuple(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::int64_t size : shape) text += std::to_string(size) + ", ";
  if (shape.size() == 1) text.pop_back();
  if (shape.size() > 1) text.resize(text.size() - 2);
  return text + ")";
}

bool has_float32(DType dtype) {
  return with_small_float(dtype, [](auto) {});
}

}  // namespace

std::string npy_description(DType dtype) {
  if (!element_format(dtype).is_numpy_type()) return {};
  const std::size_t size = element_size(dtype);
  const char native = std::endian::native == std::endian::little ? '<' : '>';
  return std::string(1, size == 1 ? '|' : native) + element_format(dtype).numpy_kind +
         std::to_string(size);
}

Result<std::string> npy_header(DType dtype, std::span<const std::int64_t> shape) {
  if (!element_format(dtype).is_numpy_type())
    return failure(ErrorCode::unsupported,
                   "numpy has no type for " + std::string(to_string(dtype)) +
                       "; --raw writes the elements as they are" +
                       (has_float32(dtype) ? ", --as float32 as numbers" : ""));
  constexpr std::size_t prefix = 10;
  std::string dict = "{'descr': '" + npy_description(dtype) +
                     "', 'fortran_order': False, 'shape': " + tuple(shape) + ", }";
  // The elements begin at a multiple of 64; the header ends with a newline.
  dict.append(63 - (prefix + dict.size()) % 64, ' ');
  dict += '\n';
  static_assert(std::numeric_limits<std::uint8_t>::max() * 22 < 0xFFFF,
                "the text of any shape fits the 16-bit length");
  const auto low = static_cast<char>(dict.size() & 0xFF);
  const auto high = static_cast<char>(dict.size() >> 8);
  return std::string("\x93NUMPY\x01", 7) + '\0' + low + high + dict;
}

}  // namespace weightmap::cli
