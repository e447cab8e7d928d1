#include "runtime/torch/run_storages.hpp"

#include "runtime/bytes/checked.hpp"

namespace weightmap::torch {

Result<std::uint32_t> RunStorages::intern(std::string_view key, std::int64_t numel, DType dtype) {
  const auto size = static_cast<std::uint8_t>(element_size(dtype));
  const std::uint32_t number = bytes::decimal(key);
  std::uint64_t nbytes;
  if (numel >= 0 && number <= count() &&
      bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(numel), size, &nbytes)) {
    if (number == count()) {
      if (add(key, nbytes, dtype, size)) return number;
    } else if (const Reference& known = references_[number];
               builder_->storage(number).nbytes - known.spare_bytes == nbytes &&
               (known.dtype == dtype || nbytes == 0)) {
      ++cache_hits_;
      return number;
    }
  }
  return failure(ErrorCode::corrupt, {});
}

}  // namespace weightmap::torch
