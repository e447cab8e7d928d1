// Reads little-endian fields from borrowed bytes, in order, and never leaves them.
//
// Failure is sticky: a read that does not fit returns zero and sets failed(), and so does every
// later read, so a parse function reads all fields and checks once at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/little_endian.hpp"

namespace weightmap::bytes {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  std::uint16_t u16() noexcept { return integer<std::uint16_t>(); }
  std::uint32_t u32() noexcept { return integer<std::uint32_t>(); }
  std::uint64_t u64() noexcept { return integer<std::uint64_t>(); }

  // Returns the next `length` bytes; empty if they are missing.
  std::span<const std::byte> take(std::size_t length) noexcept {
    if (length > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(length);
    rest_ = rest_.subspan(length);
    return taken;
  }
  void skip(std::size_t length) noexcept { take(length); }

  std::size_t left() const noexcept { return rest_.size(); }
  bool failed() const noexcept { return failed_; }

 private:
  template <class T>
  T integer() noexcept {
    const auto field = take(sizeof(T));
    return field.empty() ? T{0} : load_le<T>(field.data());
  }

  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace weightmap::bytes
