// The small records of text in a torch archive that say how to read the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::zip {

struct TextRecord {
  std::string text;
  std::uint64_t offset;  // of the record's header
};

// nullopt if there is no such record. Fails with corrupt for a longer one than any writer makes,
// and as check_no_other_case() does.
Result<std::optional<TextRecord>> read_text(const Directory& directory, bytes::ReadCache& cache,
                                            std::string_view name);

// Of a record that is not there: torch would take one in another case for it. Fails with corrupt if
// there is one.
Result<void> check_no_other_case(const Directory& directory, std::string_view name);

// The error for a record that does not hold what is expected.
tl::unexpected<Error> unexpected_text(std::string_view name, const TextRecord& record,
                                      std::string_view expected);

// Lowest and highest version that is understood: torch's own bounds.
inline constexpr std::uint64_t min_version = 1;
inline constexpr std::uint64_t max_version = 10;

// Content of `.data/version` or `version`. Fails with unsupported outside the bounds, with corrupt
// if it is missing or not a number.
Result<std::uint64_t> read_version(const Directory& directory, bytes::ReadCache& cache);

// Content of `.storage_alignment`, or 64 if there is no such record. Fails with corrupt if it is
// not a number from 1 to 65536.
Result<std::uint64_t> read_storage_alignment(const Directory& directory, bytes::ReadCache& cache);

}  // namespace weightmap::zip
