// Owns one file descriptor and closes it.
#pragma once

#include <unistd.h>

#include <utility>

namespace weightmap::os {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int descriptor) noexcept : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~UniqueFd() {
    // Never retried: after EINTR Linux has closed the descriptor.
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  // -1 if there is none.
  int get() const noexcept { return descriptor_; }
  // The caller becomes responsible for closing it.
  int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

}  // namespace weightmap::os
