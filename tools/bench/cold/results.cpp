#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {
namespace {

std::optional<double> as_double(double value) { return value; }
std::optional<double> as_double(std::uint64_t value) { return static_cast<double>(value); }
std::optional<double> as_double(std::optional<double> value) { return value; }

}  // namespace

std::string_view to_string(Scenario scenario) noexcept {
  switch (scenario) {
    case Scenario::cold:
      return "cold";
    case Scenario::warm:
      return "warm";
    case Scenario::poisoned:
      return "poisoned";
  }
  return "unknown";
}

std::string_view to_string(Order order) noexcept {
  switch (order) {
    case Order::file:
      return "file";
    case Order::random:
      return "random";
  }
  return "unknown";
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
