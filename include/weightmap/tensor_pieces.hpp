// A tensor's elements in pieces, so that memory stays bounded whatever its size.
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

// Takes consecutive bytes, which it may not keep; answers false to stop early.
using PieceSink = std::function<bool(std::span<const std::byte>)>;

// Hands out all elements row-major and in this machine's byte order. Straight from the mapping, in
// one piece, where they lie there like that; else in copies of at most `copied_bytes`. Fails with
// unsupported for lazy conjugates and negatives, whose stored values are not their values; with
// limit_exceeded where strides repeat what is stored more often than OpenOptions::repeats allows.
// May be called from any thread; `sink` is called by that thread. Reads the mapping, which raises
// SIGBUS where the file was truncated.
WEIGHTMAP_API Result<void> for_each_piece(const TensorView& view, const PieceSink& sink,
                                          std::uint64_t copied_bytes = std::uint64_t{16} << 20);

// The T that begins at `at`, which need not be aligned.
template <class T>
T load_element(const std::byte* at) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace weightmap
