#include "runtime/write/convert_elements.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "weightmap/half.hpp"

namespace weightmap {
namespace {

// What is converted at a time: it stays in the processor's cache.
constexpr std::size_t piece_elements = std::size_t{16} << 10;

// Calls use(T{}) for the T that elements of `dtype` are; answers whether there is one.
template <class Use>
bool with_float(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::float64:
      return use(double{}), true;
    case DType::float32:
      return use(float{}), true;
    case DType::float16:
      return use(float16{}), true;
    case DType::bfloat16:
      return use(bfloat16{}), true;
    default:
      return false;
  }
}

template <class T, bool is_foreign>
T load(const std::byte* from) noexcept {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if constexpr (is_foreign) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

template <bool is_foreign, class T>
void store(std::byte* to, T value) noexcept {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  if constexpr (is_foreign) std::reverse(bytes.begin(), bytes.end());
  std::memcpy(to, bytes.data(), sizeof(T));
}

using Convert = void (*)(const std::byte* from, std::byte* to, std::size_t count);

// Of any two of the types, one has all values of float32 or none beyond them, so nothing is lost on
// the way through it that would not be lost anyway, but for the second rounding of a float64.
template <class From, class To, bool is_foreign>
void convert(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(load<From, is_foreign>(from + i * sizeof(From)));
    store<is_foreign>(to + i * sizeof(To), static_cast<To>(value));
  }
}

Convert conversion(DType from, DType to, bool is_foreign) {
  Convert found = nullptr;
  with_float(from, [&]<class From>(From) {
    with_float(to, [&]<class To>(To) {
      found = is_foreign ? &convert<From, To, true> : &convert<From, To, false>;
    });
  });
  return found;
}

}  // namespace

bool can_convert(DType from, DType to) noexcept {
  const auto is_known = [](DType dtype) { return with_float(dtype, [](auto) {}); };
  return is_known(from) && is_known(to);
}

RecordContent converted(RecordContent content, DType from, DType to, bool is_foreign) {
  const std::size_t old_size = element_size(from);
  const std::size_t new_size = element_size(to);
  const Convert convert_elements = conversion(from, to, is_foreign);
  const std::uint64_t elements = content.size() / old_size;
  return RecordContent::produced(
      elements * new_size,
      [=, content = std::move(content)](const RecordContent::Take& take) -> Result<void> {
        std::vector<std::byte> piece(piece_elements * new_size);
        return content.produce()([&](std::span<const std::byte> part) -> Result<void> {
          while (part.size() >= old_size) {
            const std::size_t count = std::min(part.size() / old_size, piece_elements);
            convert_elements(part.data(), piece.data(), count);
            if (auto taken = take(std::span(piece).first(count * new_size)); !taken) return taken;
            part = part.subspan(count * old_size);
          }
          return {};
        });
      });
}

}  // namespace weightmap
