// The sums of tensors in a delta, as text: what Python's xxhash, blake3 and zlib make of the same
// bytes with hexdigest(), or "%08x" of Adler-32.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weightmap/delta.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

// nullopt for an unknown word.
std::optional<TensorSum> sum_named(std::string_view word) noexcept;
// Fails with unsupported if this build lacks it.
Result<void> check_available(TensorSum sum);
// True for a text that such a sum can be: as many hexadecimal digits, in lower case.
bool is_sum(TensorSum sum, std::string_view text) noexcept;

class RunningSum {
 public:
  // Precondition: check_available().
  explicit RunningSum(TensorSum sum);
  RunningSum(RunningSum&&) noexcept;
  RunningSum& operator=(RunningSum&&) noexcept;
  ~RunningSum();

  void add(std::span<const std::byte> bytes) noexcept;
  // Of all that was added.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap::delta
