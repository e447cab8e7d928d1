#include "runtime/services/delta/frame.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"

namespace weightmap::delta {
namespace {

constexpr std::size_t input_bytes = 128 << 10;
constexpr std::size_t longest_header = 18;  // RFC 8878, 3.1.1
constexpr std::array frame_magic = {std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f},
                                    std::byte{0xfd}};

tl::unexpected<Error> corrupt(const std::string& why, std::uint64_t offset) {
  return failure(ErrorCode::corrupt, "the frame " + why, offset);
}

// Of a complete header (RFC 8878, 3.1.1.1). A frame of a single segment has all of its content as
// its window.
std::uint64_t window_of(std::span<const std::byte> header, std::uint64_t content) noexcept {
  constexpr std::byte single_segment{0x20};
  if ((header[4] & single_segment) != std::byte{}) return content;
  const auto descriptor = std::to_integer<unsigned>(header[5]);
  const std::uint64_t base = std::uint64_t{1024} << (descriptor >> 3);
  return base + base / 8 * (descriptor & 7);
}

}  // namespace

void FrameReader::FreeContext::operator()(ZSTD_DCtx_s* context) const noexcept {
  ZSTD_freeDCtx(context);
}

FrameReader::FrameReader(const bytes::ByteSource& source, ByteRange range)
    : source_(&source),
      next_(range.offset),
      end_(range.offset + range.length),
      context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}

Result<FrameReader::Head> FrameReader::head() const {
  std::array<std::byte, longest_header> head;
  const std::span begin =
      std::span(head).first(std::min<std::uint64_t>(longest_header, end_ - next_));
  TRY(source_->read(next_, begin));
  // What libzstd also reads: formats of before 0.8, and frames to be skipped.
  if (begin.size() < frame_magic.size() ||
      !std::ranges::equal(begin.first<frame_magic.size()>(), frame_magic))
    return corrupt("does not begin as one of zstd does", next_);
  const unsigned long long stated = ZSTD_getFrameContentSize(begin.data(), begin.size());
  if (stated == ZSTD_CONTENTSIZE_ERROR) return corrupt("has a damaged header", next_);
  Head found;
  if (stated != ZSTD_CONTENTSIZE_UNKNOWN) found.stated_bytes = stated;
  found.window_bytes = std::min<std::uint64_t>(window_of(begin, stated), stated);
  return found;
}

Result<void> FrameReader::fill() {
  if (input_.empty()) {
    TRY(head());
    input_.resize(std::min<std::uint64_t>(input_bytes, end_ - next_));
  }
  const std::size_t count = std::min<std::uint64_t>(input_.size(), end_ - next_);
  TRY(source_->read(next_, std::span(input_).first(count)));
  next_ += count;
  input_begin_ = 0;
  input_end_ = count;
  return {};
}

Result<std::size_t> FrameReader::decompress(std::span<std::byte> out) {
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  while (!is_complete_) {
    if (input_begin_ == input_end_ && next_ != end_) TRY(fill());
    ZSTD_inBuffer input{input_.data(), input_end_, input_begin_};
    const std::size_t before = output.pos;
    const std::size_t left = ZSTD_decompressStream(context_.get(), &output, &input);
    const bool is_stuck = input.pos == input_begin_ && output.pos == before;
    input_begin_ = input.pos;
    if (ZSTD_isError(left) != 0)
      return corrupt(std::string("is damaged: ") + ZSTD_getErrorName(left), position());
    is_complete_ = left == 0;
    if (is_complete_ || output.pos == output.size) break;
    if (is_stuck && next_ == end_) return corrupt("ends early", end_);
  }
  return output.pos;
}

Result<void> FrameReader::read(std::span<std::byte> out) {
  while (!out.empty()) {
    TRY_ASSIGN(const std::size_t count, decompress(out));
    if (count == 0 && is_complete_)
      return corrupt("ends " + std::to_string(out.size()) + " bytes or more before what it changes",
                     position());
    out = out.subspan(count);
  }
  return {};
}

Result<void> FrameReader::skip(std::uint64_t bytes) {
  std::vector<std::byte> scratch(std::min<std::uint64_t>(bytes, input_bytes));
  while (bytes != 0) {
    const std::span part = std::span(scratch).first(std::min<std::uint64_t>(bytes, scratch.size()));
    TRY(read(part));
    bytes -= part.size();
  }
  return {};
}

Result<void> FrameReader::finish() {
  std::byte more;
  TRY_ASSIGN(const std::size_t count, decompress({&more, 1}));
  if (count != 0) return corrupt("has more bytes than what it changes", position());
  if (position() != end_) return corrupt("ends, and bytes follow it", position());
  return {};
}

void FrameWriter::FreeContext::operator()(ZSTD_CCtx_s* context) const noexcept {
  ZSTD_freeCCtx(context);
}

FrameWriter::FrameWriter(int level, std::uint64_t bytes) : context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setPledgedSrcSize(context_.get(), bytes);
}

Result<void> FrameWriter::add(std::span<const std::byte> bytes) { return compress(bytes, false); }

Result<std::vector<std::byte>> FrameWriter::finish() {
  TRY(compress({}, true));
  frame_.shrink_to_fit();  // frames are kept until their file is written
  return std::move(frame_);
}

Result<void> FrameWriter::compress(std::span<const std::byte> bytes, bool is_end) {
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  std::size_t left = 0;
  do {
    const std::size_t used = frame_.size();
    frame_.resize(used + input_bytes);
    ZSTD_outBuffer output{frame_.data() + used, input_bytes, 0};
    left = ZSTD_compressStream2(context_.get(), &output, &input,
                                is_end ? ZSTD_e_end : ZSTD_e_continue);
    frame_.resize(used + output.pos);
    if (ZSTD_isError(left) != 0)
      return failure(ErrorCode::invalid_argument,
                     std::string("zstd cannot compress it: ") + ZSTD_getErrorName(left));
  } while (is_end ? left != 0 : input.pos != input.size);
  return {};
}

}  // namespace weightmap::delta
