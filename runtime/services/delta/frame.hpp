// Frames of zstd: read from a file in pieces, with constant memory whatever they claim to hold; and
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "weightmap/result.hpp"

// zstd.h's
struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace weightmap::delta {

// Reads exactly one frame, which fills exactly the range. Errors have the offset in the source.
class FrameReader {
 public:
  // The source must outlive it.
  FrameReader(const bytes::ByteSource& source, ByteRange range);

  // Its memory, about, without the window: of zstd's decompressor, and of what is read.
  static constexpr std::uint64_t own_bytes = 320 << 10;

  struct Head {
    std::optional<std::uint64_t> stated_bytes;  // what the frame says is in it, if it does
    std::uint64_t window_bytes;                 // so much memory is needed to decompress it
  };
  // Fails with corrupt if no frame begins there.
  Result<Head> head() const;

  // Fills `out` with the next bytes. Fails with corrupt if the frame is damaged, or ends before.
  Result<void> read(std::span<std::byte> out);
  Result<void> skip(std::uint64_t bytes);
  // Fails with corrupt if there is more in the frame, or in the range.
  Result<void> finish();

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx_s* context) const noexcept;
  };

  Result<void> fill();
  // Returns how many bytes came.
  Result<std::size_t> decompress(std::span<std::byte> out);
  std::uint64_t position() const noexcept { return next_ - (input_end_ - input_begin_); }

  const bytes::ByteSource* source_;
  std::uint64_t next_;  // to be read from the source
  std::uint64_t end_;
  std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
  std::vector<std::byte> input_;
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  bool is_complete_ = false;  // the frame has ended
};

// Compresses what is added to one frame.
class FrameWriter {
 public:
  // `bytes` will be added. Precondition: zstd has this level.
  FrameWriter(int level, std::uint64_t bytes);

  Result<void> add(std::span<const std::byte> bytes);
  // Returns the frame. Fails with invalid_argument if other bytes were announced than added.
  Result<std::vector<std::byte>> finish();

 private:
  struct FreeContext {
    void operator()(ZSTD_CCtx_s* context) const noexcept;
  };
  Result<void> compress(std::span<const std::byte> bytes, bool is_end);

  std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
  std::vector<std::byte> frame_;
};

}  // namespace weightmap::delta
