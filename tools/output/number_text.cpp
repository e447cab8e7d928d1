#include "tools/output/number_text.hpp"

#include <fmt/format.h>

namespace weightmap::cli {

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "-";
}

std::string number_text(const std::optional<Number>& number) {
  if (!number) return "-";
  return std::visit(
      [](auto value) {
        if constexpr (std::is_same_v<decltype(value), double>)
          return number_text(std::optional<double>(value));
        else
          return std::to_string(value);
      },
      *number);
}

Json number_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json number_json(const std::optional<Number>& number) {
  if (!number) return nullptr;
  return std::visit([](auto value) { return Json(value); }, *number);
}

}  // namespace weightmap::cli
