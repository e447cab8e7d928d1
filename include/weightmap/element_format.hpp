// What others call the elements of a tensor: the struct module, numpy and its files, DLPack.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weightmap/dtype.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

// Quantized and packed types are called what their stored integers are.
struct ElementFormat {
  std::string_view name;         // torch's, as to_string(DType) says it
  std::string_view struct_code;  // "f", "q", "Zd"; empty if the struct module has none
  // 'f', 'i', 'u', 'c' or 'b', which with the size in bytes makes numpy's "f4"; 0 if numpy itself
  // has no such type.
  char numpy_kind;
  // "float32"; where numpy_kind is 0, the name in the package ml_dtypes; empty if that has none.
  std::string_view numpy_name;
  std::optional<std::uint8_t> dlpack_code;  // DLDataTypeCode of DLPack 1.1

  // Whether numpy has this very type, and not only one for the stored integers.
  constexpr bool is_numpy_type() const noexcept { return numpy_kind != 0 && numpy_name == name; }
};

// Lives as long as the program.
WEIGHTMAP_API const ElementFormat& element_format(DType dtype) noexcept;

}  // namespace weightmap
