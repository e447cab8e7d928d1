#include "runtime/services/archive/own_records.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

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

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

// torch's writer takes checksums from data descriptors, which an empty record does not have.
void SerializationId::add(std::string_view name, std::uint64_t size, std::uint32_t crc32) {
  names_.emplace(name);
  if (size > 0) checksums_ = combined(checksums_, crc32);
}

std::string SerializationId::digits() const {
  std::uint64_t hashes = 0;
  for (const std::string& name : names_) hashes = combined(hashes, std::hash<std::string>{}(name));
  return in_20_digits(hashes) + in_20_digits(checksums_);
}

// torch opens a path that is not ASCII as a Python file, whose archive is named "archive".
std::string archive_name(const std::filesystem::path& path, const std::string& given) {
  if (!given.empty()) return given;
  const std::string file = path.filename().native();
  const std::string stem = file.substr(0, file.rfind('.'));
  return stem.empty() || !is_ascii(path.native()) ? "archive" : stem;
}

}  // namespace weightmap
