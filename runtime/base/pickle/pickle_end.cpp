#include "runtime/base/pickle/pickle_end.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/pickle/operand.hpp"

namespace weightmap::pickle {
namespace {

// A forward source of operands that reads the file in pieces and does not read skipped bytes.
class OperandReader {
 public:
  OperandReader(bytes::ReadCache& cache, std::uint64_t offset, std::uint64_t most_bytes)
      : cache_(cache),
        begin_(offset),
        most_(most_bytes),
        end_(offset + std::min(most_bytes, cache.source_size() - offset)),
        at_(offset) {}

  std::uint64_t at() const noexcept { return at_; }
  Error take_error() noexcept { return std::move(error_); }

  // These return false after setting an error.
  bool number(std::size_t width, std::uint64_t& value) {
    if (!have(width)) return false;
    std::byte raw[8] = {};
    std::memcpy(raw, piece_.data() + (at_ - piece_offset_), width);
    at_ += width;
    value = bytes::load_le<std::uint64_t>(raw);
    return true;
  }
  // The text itself is not needed.
  bool text(std::uint64_t length, std::string_view&) {
    if (!bytes::contains(end_, at_, length)) return ends();
    at_ += length;
    return true;
  }
  bool line(OperandKind, std::string_view&) {
    while (have(1)) {
      const std::size_t from = static_cast<std::size_t>(at_ - piece_offset_);
      const auto newline = std::find(piece_.begin() + static_cast<std::ptrdiff_t>(from),
                                     piece_.end(), std::byte{'\n'});
      at_ = piece_offset_ + static_cast<std::uint64_t>(newline - piece_.begin());
      if (newline == piece_.end()) continue;
      ++at_;
      return true;
    }
    return false;
  }

 private:
  static constexpr std::uint64_t piece_bytes = bytes::first_read;

  // Makes the piece hold the next `width` bytes.
  bool have(std::size_t width) {
    if (at_ >= piece_offset_ && bytes::contains(piece_.size(), at_ - piece_offset_, width))
      return true;
    if (!bytes::contains(end_, at_, width)) return ends();
    piece_.resize(static_cast<std::size_t>(std::min(piece_bytes, end_ - at_)));
    piece_offset_ = at_;
    Result<void> copied = cache_.copy(at_, piece_);
    if (!copied) error_ = std::move(copied.error());
    return copied.has_value();
  }

  bool ends() {
    if (most_ < cache_.source_size() - begin_)
      error_ = {ErrorCode::limit_exceeded,
                "it has more than " + std::to_string(most_) + " bytes, the limit",
                begin_,
                {}};
    else
      error_ = {ErrorCode::corrupt,
                "the file is truncated, it ends within this part; the download or copy is "
                "incomplete",
                end_,
                {}};
    return false;
  }

  bytes::ReadCache& cache_;
  std::uint64_t begin_;
  std::uint64_t most_;
  std::uint64_t end_;  // of the readable range
  std::uint64_t at_;
  std::vector<std::byte> piece_;
  std::uint64_t piece_offset_ = 0;
  Error error_;
};

}  // namespace

Result<std::uint64_t> find_end(bytes::ReadCache& cache, std::uint64_t offset,
                               std::uint64_t most_bytes) {
  if (offset > cache.source_size())
    return failure(ErrorCode::corrupt, "it begins behind the end of the file", offset);
  OperandReader reader(cache, offset, most_bytes);
  std::uint64_t byte = 0;
  Operand operand;
  while (reader.number(1, byte)) {
    if (byte == op_STOP) return reader.at();
    const auto opcode = static_cast<std::uint8_t>(byte);
    const OperandForm form = operand_forms[opcode];
    if (form.kind == OperandKind::no_opcode)
      return failure(ErrorCode::corrupt, "byte " + opcode_name(opcode) + " is not an opcode",
                     reader.at() - 1);
    if (!read_operand(reader, form, operand)) break;
  }
  return tl::unexpected<Error>(reader.take_error());
}

}  // namespace weightmap::pickle
