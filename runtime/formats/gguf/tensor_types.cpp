#include "runtime/formats/gguf/tensor_types.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weightmap::gguf {
namespace {

struct TensorType {
  std::string_view name;       // ggml's spelling
  std::optional<DType> dtype;  // none: ggml has removed its layout
};

// ggml_type of ggml.h; the index is the number.
constexpr auto list_types() {
  using enum DType;
  return std::array{
      TensorType{"f32", float32},     TensorType{"f16", float16},     TensorType{"q4_0", q4_0},
      TensorType{"q4_1", q4_1},       TensorType{"q4_2", {}},         TensorType{"q4_3", {}},
      TensorType{"q5_0", q5_0},       TensorType{"q5_1", q5_1},       TensorType{"q8_0", q8_0},
      TensorType{"q8_1", q8_1},       TensorType{"q2_K", q2_K},       TensorType{"q3_K", q3_K},
      TensorType{"q4_K", q4_K},       TensorType{"q5_K", q5_K},       TensorType{"q6_K", q6_K},
      TensorType{"q8_K", q8_K},       TensorType{"iq2_xxs", iq2_xxs}, TensorType{"iq2_xs", iq2_xs},
      TensorType{"iq3_xxs", iq3_xxs}, TensorType{"iq1_s", iq1_s},     TensorType{"iq4_nl", iq4_nl},
      TensorType{"iq3_s", iq3_s},     TensorType{"iq2_s", iq2_s},     TensorType{"iq4_xs", iq4_xs},
      TensorType{"i8", int8},         TensorType{"i16", int16},       TensorType{"i32", int32},
      TensorType{"i64", int64},       TensorType{"f64", float64},     TensorType{"iq1_m", iq1_m},
      TensorType{"bf16", bfloat16},   TensorType{"q4_0_4_4", {}},     TensorType{"q4_0_4_8", {}},
      TensorType{"q4_0_8_8", {}},     TensorType{"tq1_0", tq1_0},     TensorType{"tq2_0", tq2_0},
      TensorType{"iq4_nl_4_4", {}},   TensorType{"iq4_nl_4_8", {}},   TensorType{"iq4_nl_8_8", {}},
      TensorType{"mxfp4", mxfp4},     TensorType{"nvfp4", nvfp4},     TensorType{"q1_0", q1_0},
      TensorType{"q2_0", q2_0},
  };
}
constexpr std::array tensor_types = list_types();
static_assert(tensor_types[42].name == "q2_0");

}  // namespace

Result<DType> tensor_type(std::int32_t number) {
  if (number < 0 || static_cast<std::size_t>(number) >= tensor_types.size())
    return failure(ErrorCode::unsupported, "type " + std::to_string(number) + " is not known");
  const TensorType& type = tensor_types[static_cast<std::size_t>(number)];
  if (!type.dtype)
    return failure(ErrorCode::unsupported, "type " + std::to_string(number) + ", " +
                                               std::string(type.name) +
                                               ", was removed from ggml; convert the model again");
  return *type.dtype;
}

}  // namespace weightmap::gguf
