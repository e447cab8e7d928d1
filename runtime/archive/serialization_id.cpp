#include "runtime/archive/serialization_id.hpp"

#include <cstdint>
#include <functional>
#include <unordered_set>

namespace weightmap {
namespace {

// c10::hash_combine()
std::uint64_t combined(std::uint64_t seed, std::uint64_t value) noexcept {
  return seed ^ (value + 0x9e3779b9 + (seed << 6u) + (seed >> 2u));
}

std::string in_20_digits(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(20 - digits.size(), '0') + digits;
}

}  // namespace

std::string serialization_id(const zip::Plan& plan) {
  std::unordered_set<std::string> names;
  std::uint64_t checksums = 0;
  for (std::size_t i = 0; i < plan.records().size(); ++i) {
    names.emplace(plan.name(i));
    // The writer learns checksums from data descriptors, which an empty record does not have.
    if (plan.records()[i].size > 0) checksums = combined(checksums, plan.records()[i].crc32);
  }
  std::uint64_t hashes = 0;
  for (const std::string& name : names) hashes = combined(hashes, std::hash<std::string>{}(name));
  return in_20_digits(hashes) + in_20_digits(checksums);
}

}  // namespace weightmap
