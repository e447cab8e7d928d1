#include "tools/cat/npy.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

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

// Bytes per write.
constexpr std::size_t block_bytes = std::size_t{1} << 20;

template <class Small>
bool convert(std::span<const std::byte> piece, const PieceSink& sink) {
  std::vector<float> block(std::min(piece.size() / sizeof(Small), block_bytes / sizeof(float)));
  while (!piece.empty()) {
    const std::size_t count = std::min(piece.size() / sizeof(Small), block.size());
    for (std::size_t i = 0; i < count; ++i)
      block[i] = load_element<Small>(piece.data() + i * sizeof(Small));
    if (!sink(std::as_bytes(std::span(block).first(count)))) return false;
    piece = piece.subspan(count * sizeof(Small));
  }
  return true;
}

// Returns "<f4", the type of elements in this machine's byte order.
std::string npy_description(DType dtype) {
  const std::size_t size = element_size(dtype);
  const char native = std::endian::native == std::endian::little ? '<' : '>';
  return std::string(1, size == 1 ? '|' : native) + element_format(dtype).numpy_kind +
         std::to_string(size);
}

}  // namespace

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

Result<void> for_each_float32_piece(const TensorView& view, const PieceSink& sink) {
  if (view.dtype() == DType::float32) return for_each_piece(view, sink);
  Result<void> done;
  const bool is_small = with_small_float(view.dtype(), [&](auto small) {
    using Small = decltype(small);
    done = for_each_piece(
        view, [&](std::span<const std::byte> piece) { return convert<Small>(piece, sink); });
  });
  if (is_small) return done;
  return failure(ErrorCode::unsupported,
                 "--as float32 is for float16, bfloat16 and the float8 types, of which every value "
                 "is a float32; the tensor is " +
                     std::string(to_string(view.dtype())));
}

}  // namespace weightmap::cli
