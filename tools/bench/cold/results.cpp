#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {
namespace {

std::optional<double> as_double(double value) { return value; }
std::optional<double> as_double(std::uint64_t value) { return static_cast<double>(value); }
std::optional<double> as_double(std::optional<double> value) { return value; }

}  // namespace

std::string_view to_string(Scenario scenario) noexcept {
  constexpr std::string_view words[] = {"cold", "warm", "poisoned"};
  return words[static_cast<std::size_t>(scenario)];
}

std::string_view to_string(Order order) noexcept {
  return order == Order::file ? "file" : "random";
}

std::vector<double> values(const Series& series, const Field& field) {
  std::vector<double> out;
  for (const Sample& sample : series.samples)
    if (const auto value =
            std::visit([&](auto member) { return as_double(sample.*member); }, field.member))
      out.push_back(*value);
  return out;
}

std::vector<double> values(const Series& series, double Sample::*member) {
  return values(series, Field{{}, member});
}

}  // namespace weightmap::cli::bench
