#include "runtime/formats/torch/storage_table.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/bytes/escape.hpp"

namespace weightmap::torch {
void StorageTable::stop_counting() {
  is_counted_ = false;
  by_number_.resize(storages_.size());
  std::iota(by_number_.begin(), by_number_.end(), 0u);
}

std::uint32_t* StorageTable::slot_of(std::string_view key, std::uint32_t number) {
  // A number far beyond the storages so far would let a few bytes of file allocate much memory.
  if (number != bytes::no_number && number <= 2 * storages_.size() + 64) {
    if (number >= by_number_.size())
      by_number_.resize(std::max<std::size_t>(number + 1, 2 * by_number_.size()), none);
    if (by_number_[number] != none || by_text_.empty()) return &by_number_[number];
    // The same key may have come earlier, when it was still too far beyond.
    const auto known = by_text_.find(key);
    return known == by_text_.end() ? &by_number_[number] : &known->second;
  }
  return &by_text_.try_emplace(key, none).first->second;
}

Result<std::uint32_t> StorageTable::intern(std::string_view key, std::int64_t numel, DType dtype,
                                           std::uint64_t file_offset) {
  const auto refuse = [&](const std::string& why) {
    return failure(ErrorCode::corrupt, "storage data/" + bytes::escape(key) + why, file_offset);
  };
  const auto size = static_cast<std::uint8_t>(element_size(dtype));
  std::uint64_t nbytes;
  if (numel < 0 ||
      !bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(numel), size, &nbytes))
    return refuse(" has " + std::to_string(numel) + " elements of " + bytes::counted(size, "byte"));
  const std::uint32_t number = bytes::decimal(key);
  const auto next = static_cast<std::uint32_t>(storages_.size());
  if (is_counted_ && number > next) stop_counting();
  std::uint32_t counted = number < next ? number : none;
  std::uint32_t& slot = is_counted_ ? counted : *slot_of(key, number);
  if (slot == none) {
    slot = next;
    storages_.push_back({key, nbytes, size, dtype, number});
    key_bytes_ += key.size();
    return next;
  }
  ++cache_hits_;
  const zip::StorageRequest& known = storages_[slot];
  if (known.nbytes != nbytes)
    return refuse(" has " + bytes::counted(nbytes, "byte") + " here and " +
                  bytes::counted(known.nbytes, "byte") + " where it was first referred to");
  // torch.save allows views of several types if the storage is empty.
  if (known.dtype != dtype && nbytes != 0)
    return refuse(" is of " + std::string(to_string(dtype)) + " here and of " +
                  std::string(to_string(known.dtype)) + " where it was first referred to");
  return slot;
}

}  // namespace weightmap::torch
