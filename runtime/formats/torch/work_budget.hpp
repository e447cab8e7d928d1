// Bounds the work that a pickle can cause.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::torch {

// Each visited value costs a little of a budget that grows with the pickle, so that a few bytes
// that are referred to often cannot keep an open busy.
class WorkBudget {
 public:
  // `pickle_offset` is the pickle's offset in the file, for the error.
  WorkBudget(std::uint64_t pickle_bytes, std::uint64_t pickle_offset) noexcept
      : left_((std::uint64_t{1} << 20) + 4 * pickle_bytes), pickle_offset_(pickle_offset) {}

  // Returns false once the budget is exhausted.
  bool spend(std::uint64_t work) noexcept {
    if (work > left_) return false;
    left_ -= work;
    return true;
  }
  Result<void> spent(std::uint64_t work) {
    if (spend(work)) return {};
    return tl::unexpected<Error>(exhausted());
  }
  [[gnu::cold]] Error exhausted() const {
    return {ErrorCode::limit_exceeded,
            "the pickle refers to its own values more often than is reasonable for its size",
            pickle_offset_,
            {}};
  }

 private:
  std::uint64_t left_;
  std::uint64_t pickle_offset_;
};

}  // namespace weightmap::torch
