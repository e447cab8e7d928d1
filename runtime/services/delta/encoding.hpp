// What a frame of a delta says of a tensor, and how it is applied and made, in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

// Bytes of a tensor that are worked on at a time, so that they stay in a processor's cache.
inline constexpr std::size_t window_bytes = 128 << 10;

// nullopt for an unknown word.
std::optional<DeltaEncoding> encoding_named(std::string_view word) noexcept;

// Applies one frame to one tensor. Single-threaded.
class Change {
 public:
  // Fails with corrupt if the frame cannot be one for a tensor of so many bytes. Errors of all
  // functions have the offset in the source, which must outlive the object.
  static Result<std::unique_ptr<Change>> open(DeltaEncoding encoding,
                                              const bytes::ByteSource& source, ByteRange frame,
                                              std::uint64_t tensor_bytes);
  virtual ~Change() = default;

  // Changes the next bytes of the tensor, at most window_bytes of them.
  virtual Result<void> apply(std::span<std::byte> window) = 0;
  // Fails with corrupt if the frame has more than the tensor needed.
  virtual Result<void> finish() = 0;
};

// Fails with corrupt if the frame states another number of bytes than one for this tensor has.
// Returns the bytes of memory that its Change needs. Reads the beginning of the frame alone.
Result<std::uint64_t> check_frame(DeltaEncoding encoding, const bytes::ByteSource& source,
                                  ByteRange frame, std::uint64_t tensor_bytes);

struct EncodedTensor {
  std::vector<std::byte> frame;     // empty: nothing differs
  std::uint64_t changed_bytes = 0;  // that differ
  std::string sum;                  // of the new bytes; empty without a frame
};
// Reads both window by window, some times. Precondition: `from` and `to` have as many bytes, and
// with `overwrite` less than 4 GiB. Fails as the sources do.
Result<EncodedTensor> encode(const DeltaOptions& options, const bytes::ByteSource& from,
                             const bytes::ByteSource& to);

}  // namespace weightmap::delta
