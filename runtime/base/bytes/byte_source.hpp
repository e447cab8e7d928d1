// The origin of bytes: a file, or memory in tests and fuzzing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/byte_range.hpp"
#include "weightmap/result.hpp"

namespace weightmap::bytes {

// The size of the first read, at the end of a file. It covers the directory of about 900 records
// and the marks of foreign files. A smaller file is read whole.
inline constexpr std::uint64_t first_read = 65536;

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const noexcept = 0;
  // Fills `out` from `offset`. A range outside the source is corrupt; a failed read is io.
  virtual Result<void> read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Announces reads of many small ranges: a source that waits for each of them gets all at once.
  // Ranges outside the source are ignored. Fails as read() does.
  virtual Result<void> will_read(std::span<const ByteRange>) const { return {}; }
};

// Borrowed bytes, which must outlive the source.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> bytes_;
};

// Returns the error for a range that leaves `source`.
tl::unexpected<Error> leaves_source(const ByteSource& source, std::uint64_t offset,
                                    std::uint64_t length);

}  // namespace weightmap::bytes
