// The output buffer of the pickle writer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/pickle/opcode.hpp"

namespace weightmap::pickle {

// A vector that is longer than its content, so that bytes can be written without checks.
class OpcodeOutput {
 public:
  // Returns false if the content would exceed `limit` bytes.
  bool reserve(std::uint64_t count, std::uint64_t limit) {
    if (count <= bytes_.size() - size_) return true;
    if (size_ > limit || count > limit - size_ + margin) return false;
    bytes_.resize(std::max(bytes_.size() * 2, size_ + static_cast<std::size_t>(count) + 1024));
    return true;
  }
  // These write into space from reserve().
  void byte(unsigned value) noexcept { bytes_[size_++] = static_cast<std::byte>(value); }
  // Writes an opcode with an operand of `width` bytes, at most seven, little-endian.
  void opcode(Opcode code, std::uint64_t operand, unsigned width) noexcept {
    std::uint64_t word = operand << 8 | code;
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    std::memcpy(bytes_.data() + size_, &word, sizeof word);
    size_ += 1 + width;
  }
  void text(std::string_view text) noexcept {
    if (!text.empty()) std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }
  void string(std::string_view utf8) noexcept {
    opcode(op_BINUNICODE, utf8.size(), 4);
    text(utf8);
  }
  // Writes characters of Latin-1 as UTF-8, up to twice as many bytes.
  void latin1_text(std::string_view text) noexcept {
    for (const char signed_byte : text) {
      const auto character = static_cast<std::uint8_t>(signed_byte);
      if (character < 0x80) {
        byte(character);
      } else {
        byte(0xC0 | character >> 6);
        byte(0x80 | (character & 0x3F));
      }
    }
  }
  void integer(std::int64_t value) noexcept {
    const auto bits = static_cast<std::uint64_t>(value);
    if (bits <= 0xFF) {
      opcode(op_BININT1, bits, 1);
    } else if (bits <= 0xFFFF) {
      opcode(op_BININT2, bits, 2);
    } else if (value == static_cast<std::int32_t>(value)) {
      opcode(op_BININT, bits, 4);
    } else {
      unsigned length = 5;
      while (length < 8 && value >> (8 * length - 1) != value >> 63) ++length;
      opcode(op_LONG1, length, 1);
      for (unsigned i = 0; i < length; ++i) byte(static_cast<std::uint8_t>(bits >> (8 * i)));
    }
  }
  void real(std::uint64_t bits) noexcept {
    byte(op_BINFLOAT);
    for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<std::uint8_t>(bits >> shift));
  }
  std::size_t size() const noexcept { return size_; }
  std::vector<std::byte> take() {
    bytes_.resize(size_);
    return std::move(bytes_);
  }

  // reserve() accepts requests up to this much beyond the limit, so callers may overestimate.
  static constexpr std::uint64_t margin = 128;

 private:
  std::vector<std::byte> bytes_;
  std::size_t size_ = 0;
};

}  // namespace weightmap::pickle
