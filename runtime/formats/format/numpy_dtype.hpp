// The dtypes of numpy that tensors have.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "weightmap/dtype.hpp"

namespace weightmap::format {

// Returns the dtype with a name such as "f4", which numpy writes behind the byte order; nullopt if
// no tensor has it.
inline std::optional<DType> numpy_dtype(std::string_view name) noexcept {
  constexpr std::pair<std::string_view, DType> known[] = {
      {"b1", DType::boolean},   {"i1", DType::int8},       {"i2", DType::int16},
      {"i4", DType::int32},     {"i8", DType::int64},      {"u1", DType::uint8},
      {"u2", DType::uint16},    {"u4", DType::uint32},     {"u8", DType::uint64},
      {"f2", DType::float16},   {"f4", DType::float32},    {"f8", DType::float64},
      {"c8", DType::complex64}, {"c16", DType::complex128}};
  for (const auto& [spelled, dtype] : known)
    if (spelled == name) return dtype;
  return std::nullopt;
}

}  // namespace weightmap::format
