#include "runtime/system/file/truncation.hpp"

#include <algorithm>
#include <string>

#include "runtime/base/bytes/checked.hpp"

namespace weightmap::os {

Result<void> check_not_truncated(const File& file, std::uint64_t offset, std::uint64_t length) {
  const Result<Generation> now = file.current_generation();
  if (!now) return tl::unexpected<Error>(now.error());
  if (bytes::contains(now->size, offset, length)) return {};
  return failure(ErrorCode::io,
                 "the file was truncated while it was mapped: it had " +
                     std::to_string(file.size()) + " bytes and has now " +
                     std::to_string(now->size),
                 std::min(offset, now->size));
}

}  // namespace weightmap::os
