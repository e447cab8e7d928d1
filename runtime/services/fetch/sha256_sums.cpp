#include <string>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {

std::optional<std::array<std::byte, 32>> sha256_of_hex(std::string_view hex) noexcept {
  return bytes::parse_sha256(hex);
}

Result<Sha256Sums> read_sha256_sums(const std::filesystem::path& file) {
  TRY_ASSIGN(const std::vector<FileSum> listed, read_sums(file));
  if (listed.empty()) return about_file({ErrorCode::corrupt, "lists no file"}, file);
  Sha256Sums sums;
  for (const FileSum& sum : listed) {
    const std::array<std::byte, 32> wanted = *bytes::parse_sha256(sum.sha256);
    const std::string name = std::filesystem::path(sum.name).lexically_normal();
    if (sums.emplace(name, wanted).first->second != wanted)
      return about_file({ErrorCode::corrupt, "lists " + bytes::quote(name) + " with two SHA-256s"},
                        file);
  }
  return sums;
}

}  // namespace weightmap
