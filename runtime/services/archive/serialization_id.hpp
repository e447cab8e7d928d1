// The record `.data/serialization_id`, by which torch identifies equal content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

namespace weightmap {

// Computes the id as PyTorchStreamWriter does (caffe2/serialize/inline_container.cc). It uses the
// C++ library's hash and the order of its std::unordered_set: with libstdc++, which torch is built
// with, the digits equal torch's.
class SerializationId {
 public:
  static constexpr std::string_view record = ".data/serialization_id";
  static constexpr std::uint64_t digit_count = 40;

  // Adds a record by its name without the top folder, in the order of the archive.
  void add(std::string_view name, std::uint64_t size, std::uint32_t crc32);
  // Returns 20 digits of a hash of all names, then 20 of all checksums.
  std::string digits() const;

 private:
  std::unordered_set<std::string> names_;
  std::uint64_t checksums_ = 0;
};

}  // namespace weightmap
