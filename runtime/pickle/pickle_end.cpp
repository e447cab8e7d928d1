#include "runtime/pickle/pickle_end.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/little_endian.hpp"
#include "runtime/pickle/opcode.hpp"

namespace weightmap::pickle {
namespace {

// What stands behind an opcode: so many bytes; or a length in so many bytes, and then as many as it
// says; or so many lines.
struct Operand {
  std::uint8_t fixed = 0;
  std::uint8_t length_bytes = 0;
  std::uint8_t lines = 0;
};

// nullopt: no opcode.
std::optional<Operand> operand_of(std::uint8_t opcode) noexcept {
  switch (opcode) {
    case op_MARK:
    case op_STOP:
    case op_POP:
    case op_POP_MARK:
    case op_DUP:
    case op_NONE:
    case op_BINPERSID:
    case op_REDUCE:
    case op_APPEND:
    case op_BUILD:
    case op_DICT:
    case op_EMPTY_DICT:
    case op_APPENDS:
    case op_LIST:
    case op_EMPTY_LIST:
    case op_OBJ:
    case op_SETITEM:
    case op_TUPLE:
    case op_EMPTY_TUPLE:
    case op_SETITEMS:
    case op_NEWOBJ:
    case op_TUPLE1:
    case op_TUPLE2:
    case op_TUPLE3:
    case op_NEWTRUE:
    case op_NEWFALSE:
    case op_EMPTY_SET:
    case op_ADDITEMS:
    case op_FROZENSET:
    case op_NEWOBJ_EX:
    case op_STACK_GLOBAL:
    case op_MEMOIZE:
    case op_NEXT_BUFFER:
    case op_READONLY_BUFFER:
      return Operand{};
    case op_BININT1:
    case op_BINGET:
    case op_BINPUT:
    case op_PROTO:
    case op_EXT1:
      return Operand{1, 0, 0};
    case op_BININT2:
    case op_EXT2:
      return Operand{2, 0, 0};
    case op_BININT:
    case op_LONG_BINGET:
    case op_LONG_BINPUT:
    case op_EXT4:
      return Operand{4, 0, 0};
    case op_BINFLOAT:
    case op_FRAME:
      return Operand{8, 0, 0};
    case op_SHORT_BINSTRING:
    case op_SHORT_BINBYTES:
    case op_SHORT_BINUNICODE:
    case op_LONG1:
      return Operand{0, 1, 0};
    case op_BINSTRING:
    case op_BINUNICODE:
    case op_BINBYTES:
    case op_LONG4:
      return Operand{0, 4, 0};
    case op_BINUNICODE8:
    case op_BINBYTES8:
    case op_BYTEARRAY8:
      return Operand{0, 8, 0};
    case op_FLOAT:
    case op_INT:
    case op_LONG:
    case op_PERSID:
    case op_STRING:
    case op_UNICODE:
    case op_GET:
    case op_PUT:
      return Operand{0, 0, 1};
    case op_GLOBAL:
    case op_INST:
      return Operand{0, 0, 2};
    default:
      return std::nullopt;
  }
}

// Reads forwards, a piece at a time; what is skipped is not read.
class Reader {
 public:
  Reader(bytes::Windows& windows, std::uint64_t offset, std::uint64_t most_bytes)
      : windows_(windows),
        begin_(offset),
        most_(most_bytes),
        end_(offset + std::min(most_bytes, windows.source_size() - offset)),
        at_(offset) {}

  std::uint64_t at() const noexcept { return at_; }

  // A little-endian number of at most 8 bytes.
  Result<std::uint64_t> number(std::size_t width) {
    TRY(have(width));
    std::byte raw[8] = {};
    std::memcpy(raw, piece_.data() + (at_ - piece_offset_), width);
    at_ += width;
    return bytes::load_le<std::uint64_t>(raw);
  }

  Result<void> skip(std::uint64_t length) {
    if (!bytes::contains(end_, at_, length)) return ends();
    at_ += length;
    return {};
  }

  Result<void> skip_line() {
    while (true) {
      TRY(have(1));
      const std::size_t from = static_cast<std::size_t>(at_ - piece_offset_);
      const auto newline = std::find(piece_.begin() + static_cast<std::ptrdiff_t>(from),
                                     piece_.end(), std::byte{'\n'});
      at_ = piece_offset_ + static_cast<std::uint64_t>(newline - piece_.begin());
      if (newline == piece_.end()) continue;
      ++at_;
      return {};
    }
  }

 private:
  static constexpr std::uint64_t piece_bytes = bytes::first_read;

  // Makes the piece hold `width` bytes from here on, a few.
  Result<void> have(std::size_t width) {
    if (at_ >= piece_offset_ && bytes::contains(piece_.size(), at_ - piece_offset_, width))
      return {};
    if (!bytes::contains(end_, at_, width)) return ends();
    piece_.resize(static_cast<std::size_t>(std::min(piece_bytes, end_ - at_)));
    piece_offset_ = at_;
    return windows_.copy(at_, piece_);
  }

  tl::unexpected<Error> ends() const {
    if (most_ < windows_.source_size() - begin_)
      return failure(ErrorCode::limit_exceeded,
                     "it has more than " + std::to_string(most_) + " bytes, the limit", begin_);
    return failure(ErrorCode::corrupt,
                   "the file is truncated, it ends within this part; the download or copy is "
                   "incomplete",
                   end_);
  }

  bytes::Windows& windows_;
  std::uint64_t begin_;
  std::uint64_t most_;
  std::uint64_t end_;  // of what may be read
  std::uint64_t at_;
  std::vector<std::byte> piece_;
  std::uint64_t piece_offset_ = 0;
};

}  // namespace

Result<std::uint64_t> find_end(bytes::Windows& windows, std::uint64_t offset,
                               std::uint64_t most_bytes) {
  if (offset > windows.source_size())
    return failure(ErrorCode::corrupt, "it begins behind the end of the file", offset);
  Reader reader(windows, offset, most_bytes);
  while (true) {
    TRY_ASSIGN(const std::uint64_t opcode, reader.number(1));
    if (opcode == op_STOP) return reader.at();
    const std::optional<Operand> operand = operand_of(static_cast<std::uint8_t>(opcode));
    if (!operand)
      return failure(ErrorCode::corrupt,
                     "byte " + opcode_name(static_cast<std::uint8_t>(opcode)) + " is not an opcode",
                     reader.at() - 1);
    TRY(reader.skip(operand->fixed));
    if (operand->length_bytes != 0) {
      TRY_ASSIGN(const std::uint64_t length, reader.number(operand->length_bytes));
      TRY(reader.skip(length));
    }
    for (int line = 0; line < operand->lines; ++line) TRY(reader.skip_line());
  }
}

}  // namespace weightmap::pickle
