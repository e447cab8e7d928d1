#include "tools/bench/cold/fields.hpp"

#include <cinttypes>
#include <cstdio>

namespace weightmap::cli::bench {
namespace {

std::optional<double> as_double(double value) { return value; }
std::optional<double> as_double(std::uint64_t value) { return static_cast<double>(value); }
std::optional<double> as_double(std::optional<double> value) { return value; }

}  // namespace

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

std::string checksum_text(const Sample& sample) {
  std::array<char, 19> out{};
  std::snprintf(out.data(), out.size(), "0x%016" PRIx64, sample.checksum);
  return out.data();
}

}  // namespace weightmap::cli::bench
