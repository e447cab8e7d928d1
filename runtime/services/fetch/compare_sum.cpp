#include "runtime/services/fetch/compare_sum.hpp"

#include <string>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/verify/sum_list.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

const char* whose(SumFrom from) noexcept {
  if (from == SumFrom::beside) return " as SHA256SUMS beside it says";
  return from == SumFrom::store ? " as its store says" : " as was asked for";
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

void KnownSum::add_to(FetchReport& report) const noexcept {
  report.summed_bytes = digest ? report.file_bytes : 0;
  report.sum_from = from;
  report.has_composite_sum = is_composite;
}

Result<KnownSum> known_sum(const std::string& name, RangeSource& source,
                           const FetchOptions& options, const Sha256Sums* beside) {
  TRY_ASSIGN(const auto* const given, sum_for(name, options));
  if (given != nullptr) return KnownSum{*given, SumFrom::caller};
  if (beside != nullptr)
    if (const auto found = beside->find(name); found != beside->end())
      return KnownSum{found->second, SumFrom::beside};
  TRY_ASSIGN(const StoreSum said, source.store_sum());
  if (said.sha256) return KnownSum{said.sha256, SumFrom::store};
  if (!options.require_digest) return KnownSum{.is_composite = said.is_composite};
  return failure(
      ErrorCode::invalid_argument,
      "no SHA-256 of " + bytes::quote(name) + " is known, which is required: none was " +
          (beside != nullptr && !beside->empty() ? "given, SHA256SUMS does not name it" : "given") +
          ", and its store says " +
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
  return failure(ErrorCode::corrupt, "has the SHA-256 " + bytes::to_hex(found) + ", not " +
                                         bytes::to_hex(*known.digest) + whose(known.from));
}

std::optional<std::array<std::byte, 32>> sha256_of_hex(std::string_view hex) noexcept {
  return bytes::parse_sha256(hex);
}

Result<Sha256Sums> sums_in(const os::File& list) {
  TRY_ASSIGN(const std::vector<ListedSum> listed, read_sum_list(list));
  if (listed.empty()) return failure(ErrorCode::corrupt, "lists no file");
  Sha256Sums sums;
  for (const ListedSum& sum : listed) {
    const std::string name = std::filesystem::path(sum.name).lexically_normal();
    if (sums.emplace(name, sum.sha256).first->second != sum.sha256)
      return failure(ErrorCode::corrupt, "lists " + bytes::quote(name) + " with two SHA-256s");
  }
  return sums;
}

Result<Sha256Sums> read_sha256_sums(const std::filesystem::path& file) {
  return about_file(os::File::open(file, false).and_then(sums_in), file);
}

}  // namespace weightmap
