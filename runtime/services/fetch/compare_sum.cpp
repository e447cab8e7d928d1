#include "runtime/services/fetch/compare_sum.hpp"

#include <string>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {

Result<const bytes::Sha256::Digest*> sum_for(const std::string& name, const FetchOptions& options) {
  if (options.sha256.empty()) return nullptr;
  for (const std::string& key : {name, std::string()})
    if (const auto found = options.sha256.find(key); found != options.sha256.end())
      return &found->second;
  return failure(ErrorCode::invalid_argument,
                 "is not among the files whose SHA-256s were given: " + bytes::quote(name));
}

void KnownSum::add_to(FetchReport& report) const noexcept {
  report.summed_bytes = digest ? report.file_bytes : 0;
  report.sum_from = from;
  report.has_composite_sum = is_composite;
}

Result<KnownSum> known_sum(const std::string& name, RangeSource& source,
                           const FetchOptions& options) {
  TRY_ASSIGN(const auto* const given, sum_for(name, options));
  if (given != nullptr) return KnownSum{*given, SumFrom::caller};
  TRY_ASSIGN(const StoreSum said, source.store_sum());
  if (said.sha256) return KnownSum{said.sha256, SumFrom::store};
  if (!options.require_digest) return KnownSum{.is_composite = said.is_composite};
  return failure(ErrorCode::invalid_argument,
                 "no SHA-256 of " + bytes::quote(name) +
                     " is known, which is required: none was given, and its store says " +
                     (said.is_composite ? "only that of the parts it was uploaded in" : "none"));
}

Result<void> compare_sum(const bytes::Sha256::Digest& wanted, const os::File& file,
                         const Progress& progress) {
  RunningSum sum(file);
  return compare_sum({wanted, SumFrom::caller}, sum, progress);
}

Result<void> compare_sum(const KnownSum& known, RunningSum& sum, const Progress& progress) {
  TRY_ASSIGN(const bytes::Sha256::Digest found, sum.finish(progress));
  if (found == *known.digest) return {};
  return failure(ErrorCode::corrupt,
                 "has the SHA-256 " + bytes::to_hex(found) + ", not " +
                     bytes::to_hex(*known.digest) +
                     (known.from == SumFrom::store ? " as its store says" : " as was asked for"));
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
