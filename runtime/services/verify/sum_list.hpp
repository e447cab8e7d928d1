// Lists of the SHA-256s of files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/sha256.hpp"
#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct ListedSum {
  std::string name;
  bytes::Sha256::Digest sha256;
  std::string place;  // in the list: "line 3"
};

// As sha256sum writes them, also with --tag, or as the manifest of OpenSSF Model Signing, which
// read_model_signature() reads. Fails with limit_exceeded beyond 64 MiB, with corrupt for a line
// that is none, and as the file and read_model_signature() do. Errors name no file.
Result<std::vector<ListedSum>> read_sum_list(const os::File& file);

}  // namespace weightmap
