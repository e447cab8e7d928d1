// What a record of an archive that is being written is filled with.
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
  // Takes the next bytes of a record, which it does not keep. What it fails with, whoever calls it
  // returns on.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  // Gives all bytes of a record to `take`, part by part, in order. Is called once, by the thread
  // that writes.
  using Produce = std::function<Result<void>(const Take& take)>;

  // Borrows the bytes, which must stay as they are until they are written. Those of a checkpoint
  // that is mapped with Protection::guard may get lost meanwhile, which fails the writing with io.
  static RecordContent bytes(std::span<const std::byte> content) noexcept {
    RecordContent made(Kind::memory, content.size());
    made.data_ = content.data();
    return made;
  }
  static RecordContent text(std::string_view content) noexcept {
    return bytes(std::as_bytes(std::span(content)));
  }
  // `size` bytes, which need not be in memory at once.
  static RecordContent produced(std::uint64_t size, Produce produce) {
    RecordContent made(Kind::produced, size);
    made.produce_ = std::move(produce);
    return made;
  }
  // A hole, which reads as zeros; zeros where the target knows no holes.
  static RecordContent zeros(std::uint64_t size) noexcept {
    return RecordContent(Kind::zeros, size);
  }
  // The same, to be filled in later: the record's CRC-32 is given as "not computed".
  static RecordContent reserved(std::uint64_t size) noexcept {
    return RecordContent(Kind::reserved, size);
  }

  // The same content, whose CRC-32 is given as "not computed": it will be changed in place.
  RecordContent changeable() && {
    is_summed_ = false;
    return std::move(*this);
  }

  enum class Kind : std::uint8_t { memory, produced, zeros, reserved };
  Kind kind() const noexcept { return kind_; }
  std::uint64_t size() const noexcept { return size_; }
  bool is_summed() const noexcept { return is_summed_; }
  // Of content in memory; else none.
  std::span<const std::byte> memory() const noexcept {
    return {data_, kind_ == Kind::memory ? static_cast<std::size_t>(size_) : 0};
  }
  // Of content that is produced; else empty.
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
