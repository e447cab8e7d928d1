// The content of a record in an archive that is being written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap {

class RecordContent {
 public:
  // Consumes the next bytes of a record without keeping them. The caller returns its errors.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  // Passes all bytes of a record to `take`, in order and in parts. Called once by the writing
  // thread.
  using Produce = std::function<Result<void>(const Take& take)>;

  // Borrows the bytes, which must not change until they are written. Bytes of a checkpoint that is
  // mapped with Protection::guard may be lost meanwhile, which fails the write with io.
  static RecordContent bytes(std::span<const std::byte> content) noexcept {
    RecordContent made(Kind::memory, content.size());
    made.data_ = content.data();
    return made;
  }
  static RecordContent text(std::string_view content) noexcept {
    return bytes(std::as_bytes(std::span(content)));
  }
  // Makes content of `size` bytes, which need not be in memory at once.
  static RecordContent produced(std::uint64_t size, Produce produce) {
    RecordContent made(Kind::produced, size);
    made.produce_ = std::move(produce);
    return made;
  }
  // Makes a hole, which reads as zeros; zeros if the target does not support holes.
  static RecordContent zeros(std::uint64_t size) noexcept {
    return RecordContent(Kind::zeros, size);
  }
  // Makes a hole to be filled in later; the record's CRC-32 is stated as "not computed".
  static RecordContent reserved(std::uint64_t size) noexcept {
    return RecordContent(Kind::reserved, size);
  }

  // Returns the same content, to be changed in place later; its CRC-32 is stated as "not computed".
  RecordContent changeable() && {
    is_summed_ = false;
    return std::move(*this);
  }

  enum class Kind : std::uint8_t { memory, produced, zeros, reserved };
  Kind kind() const noexcept { return kind_; }
  std::uint64_t size() const noexcept { return size_; }
  bool is_summed() const noexcept { return is_summed_; }
  // The bytes of content in memory; otherwise empty.
  std::span<const std::byte> memory() const noexcept {
    return {data_, kind_ == Kind::memory ? static_cast<std::size_t>(size_) : 0};
  }
  // The function of produced content; otherwise empty.
  const Produce& produce() const noexcept { return produce_; }

 private:
  RecordContent(Kind kind, std::uint64_t size) noexcept : kind_(kind), size_(size) {}

  Kind kind_;
  bool is_summed_ = true;
  std::uint64_t size_;
  const std::byte* data_ = nullptr;
  Produce produce_ = {};
};

}  // namespace weightmap
