// Appends little-endian fields to a vector that the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weightmap::bytes {

class ByteSink {
 public:
  // `out` must outlive the sink.
  explicit ByteSink(std::vector<std::byte>& out) noexcept : out_(&out) {}

  void u16(std::uint64_t value) { integer(value, 2); }
  void u32(std::uint64_t value) { integer(value, 4); }
  void u64(std::uint64_t value) { integer(value, 8); }
  void fill(std::size_t count, char value) { out_->insert(out_->end(), count, std::byte(value)); }
  void text(std::string_view value) { put(std::as_bytes(std::span(value))); }
  void put(std::span<const std::byte> value) {
    out_->insert(out_->end(), value.begin(), value.end());
  }

 private:
  void integer(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) out_->push_back(static_cast<std::byte>(value >> (8 * i)));
  }

  std::vector<std::byte>* out_;
};

}  // namespace weightmap::bytes
