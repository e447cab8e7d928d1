#include "runtime/services/fetch/compare_sum.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

constexpr std::uint64_t step = std::uint64_t{4} << 20;

Result<void> compare(const bytes::Sha256::Digest& wanted, bytes::Sha256& sum) {
  const bytes::Sha256::Digest found = sum.digest();
  if (found == wanted) return {};
  return failure(ErrorCode::corrupt, "has the SHA-256 " + bytes::to_hex(found) + ", not " +
                                         bytes::to_hex(wanted) + " as was asked for");
}

}  // namespace

Result<const bytes::Sha256::Digest*> sum_for(const std::string& name, const FetchOptions& options) {
  if (options.sha256.empty()) return nullptr;
  for (const std::string& key : {name, std::string()})
    if (const auto found = options.sha256.find(key); found != options.sha256.end())
      return &found->second;
  return failure(ErrorCode::invalid_argument,
                 "is not among the files whose SHA-256s were given: " + bytes::quote(name));
}

Result<void> compare_sum(const bytes::Sha256::Digest& wanted, const os::File& file,
                         const Progress& progress) {
  bytes::Sha256 sum;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(step, file.size())));
  for (std::uint64_t at = 0; at < file.size(); at += step) {
    const auto bytes = std::span(buffer).first(std::min(step, file.size() - at));
    TRY(file.read(at, bytes));
    sum.add(bytes);
    TRY(go_on(progress, file.size(), file.size()));
  }
  return compare(wanted, sum);
}

Result<void> compare_sum(const bytes::Sha256::Digest& wanted, std::span<const std::byte> bytes) {
  bytes::Sha256 sum;
  sum.add(bytes);
  return compare(wanted, sum);
}

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
