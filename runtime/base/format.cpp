#include "weightmap/format.hpp"

#include <array>

namespace weightmap {

std::string_view to_string(Format format) noexcept {
  constexpr std::array<std::string_view, 11> names = {
      "unknown", "torch_zip", "torchscript", "pt2", "torch_legacy", "safetensors",
      "gguf",    "dcp",       "mixed",       "zip", "pickle"};
  return names[static_cast<std::size_t>(format)];
}

}  // namespace weightmap
