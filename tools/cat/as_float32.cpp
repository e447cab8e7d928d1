#include "tools/cat/as_float32.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "weightmap/half.hpp"

namespace weightmap::cli {
namespace {

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

}  // namespace

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
