#include "runtime/base/bytes/byte_source.hpp"

#include <cstring>
#include <string>

#include "runtime/base/bytes/checked.hpp"

namespace weightmap::bytes {

Result<void> MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (!contains(bytes_.size(), offset, out.size())) return leaves_source(*this, offset, out.size());
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return {};
}

tl::unexpected<Error> leaves_source(const ByteSource& source, std::uint64_t offset,
                                    std::uint64_t length) {
  return failure(ErrorCode::corrupt,
                 std::to_string(length) + " bytes from offset " + std::to_string(offset) +
                     " leave the file of " + std::to_string(source.size()) + " bytes",
                 offset);
}

}  // namespace weightmap::bytes
