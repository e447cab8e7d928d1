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

#include "runtime/pickle/opcode.hpp"

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
