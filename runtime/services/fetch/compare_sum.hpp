// Files that are compared with SHA-256s of the caller (FetchOptions::sha256).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/bytes/sha256.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// What the file of this name must have; nullptr if no sums were given. Fails with invalid_argument
// if it is not among them.
Result<const bytes::Sha256::Digest*> sum_for(const std::string& name, const FetchOptions& options);

// Fails with corrupt if the bytes have another one, with cancelled if the progress says so.
Result<void> compare_sum(const bytes::Sha256::Digest& wanted, const os::File& file,
                         const Progress& progress);
Result<void> compare_sum(const bytes::Sha256::Digest& wanted, std::span<const std::byte> bytes);

}  // namespace weightmap
