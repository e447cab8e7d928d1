// What an ArchiveWriter adds of itself, for plans of an archive too: the name of the top folder,
// and the records at the end.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>

namespace weightmap {

// The record `.data/serialization_id`, by which torch identifies equal content. Computes the id as
// PyTorchStreamWriter does (caffe2/serialize/inline_container.cc). It uses the
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

// Returns the name of the version record.
inline std::string_view version_name(std::uint64_t version) noexcept {
  return version < 6 ? "version" : ".data/version";
}
inline std::string version_text(std::uint64_t version) { return std::to_string(version) + "\n"; }

// Content of the record byteorder.
inline constexpr std::string_view native_byte_order =
    std::endian::native == std::endian::little ? "little" : "big";

// Returns torch.save's name for the top folder: `given` unless it is empty; otherwise the file's
// stem, "archive" for an empty path.
std::string archive_name(const std::filesystem::path& path, const std::string& given);

}  // namespace weightmap
