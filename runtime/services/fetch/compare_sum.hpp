// Files that are compared with the SHA-256s that somebody says of them (SumFrom).
#pragma once

#include <optional>
#include <string>

#include "runtime/base/bytes/sha256.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// What the file of this name must have; nullptr if no sums were given. Fails with invalid_argument
// if it is not among them.
Result<const bytes::Sha256::Digest*> sum_for(const std::string& name, const FetchOptions& options);

// What is known of the SHA-256 that a file must have.
struct KnownSum {
  std::optional<bytes::Sha256::Digest> digest = {};
  SumFrom from = SumFrom::nobody;
  bool is_composite = false;  // the store's is of parts, and of no use here

  // Notes in the report that all of the file was compared with it, if it is known.
  void add_to(FetchReport& report) const noexcept;
};
// What the options give, else the list that lies beside the file in its store, if there is one,
// else what the source's store says. Fails as sum_for() and the source do; with invalid_argument if
// a digest is required and nobody has one.
Result<KnownSum> known_sum(const std::string& name, RangeSource& source,
                           const FetchOptions& options, const Sha256Sums* beside = nullptr);
// See read_sha256_sums(). Errors name no file.
Result<Sha256Sums> sums_in(const os::File& list);

// Fails with corrupt if the bytes have another one, with cancelled if the progress says so.
Result<void> compare_sum(const bytes::Sha256::Digest& wanted, const os::File& file,
                         const Progress& progress);
// The same of a file that has arrived, while most of it was summed.
Result<void> compare_sum(const KnownSum& known, RunningSum& sum, const Progress& progress);

}  // namespace weightmap
