// The figures of a sample by name, for reports that show all of them.
#pragma once

#include <array>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

struct Field {
  std::string_view name;  // as in Sample
  std::variant<double Sample::*, std::uint64_t Sample::*, std::optional<double> Sample::*> member;
};

// All figures except the checksum, which is not a quantity.
inline constexpr std::array<Field, 12> fields = {{
    {"open_ms", &Sample::open_ms},
    {"first_byte_ms", &Sample::first_byte_ms},
    {"first_tensor_ms", &Sample::first_tensor_ms},
    {"all_ms", &Sample::all_ms},
    {"disk_bytes", &Sample::disk_bytes},
    {"minor_faults", &Sample::minor_faults},
    {"major_faults", &Sample::major_faults},
    {"anonymous_bytes", &Sample::anonymous_bytes},
    {"file_bytes", &Sample::file_bytes},
    {"cached_before", &Sample::cached_before},
    {"cached_after", &Sample::cached_after},
    {"huge_part_after", &Sample::huge_part_after},
}};

// Returns one value for each sample that has it, in the order of the rounds.
std::vector<double> values(const Series& series, const Field& field);
std::vector<double> values(const Series& series, double Sample::*member);

// Returns "0x0123456789abcdef" as text, since readers of JSON and tables round 64-bit numbers.
std::string checksum_text(const Sample& sample);

}  // namespace weightmap::cli::bench
