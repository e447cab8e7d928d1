// Reads a tensor's elements in pieces, so that memory stays bounded whatever its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>

#include "weightmap/export.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Receives consecutive bytes, which it must not keep; returns false to stop early.
using PieceSink = std::function<bool(std::span<const std::byte>)>;

// Passes all elements to `sink`, row-major and in this machine's byte order: directly from the
// mapping, in one piece, if they have that form there; otherwise in copies of at most
// `copied_bytes`. Fails with unsupported for lazy conjugates and negatives, whose stored values are
// not their values; with limit_exceeded if strides repeat stored elements more often than
// OpenOptions::repeats allows. May be called from any thread, which also calls `sink`. Reads the
// mapping, which raises SIGBUS if the file was truncated.
WEIGHTMAP_API Result<void> for_each_piece(const TensorView& view, const PieceSink& sink,
                                          std::uint64_t copied_bytes = std::uint64_t{16} << 20);

// Returns the T at `at`, which need not be aligned.
template <class T>
T load_element(const std::byte* at) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace weightmap
