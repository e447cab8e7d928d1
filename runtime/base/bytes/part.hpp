// A part of another source.
#pragma once

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/checked.hpp"

namespace weightmap::bytes {

// Borrows `whole`, in which the range lies.
class Part final : public ByteSource {
 public:
  Part(const ByteSource& whole, std::uint64_t base, std::uint64_t size) noexcept
      : whole_(whole), base_(base), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!contains(size_, offset, out.size())) return leaves_source(*this, offset, out.size());
    return whole_.read(base_ + offset, out);
  }

 private:
  const ByteSource& whole_;
  std::uint64_t base_;
  std::uint64_t size_;
};

}  // namespace weightmap::bytes
