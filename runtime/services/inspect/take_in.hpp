// Passes the bytes of a tensor to an accumulator, piece by piece, in one thread or several.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"

namespace weightmap::inspect {

// Large tensors are divided among threads. If the order of additions affects the last digit, the
// number of parts is fixed, so that statistics are the same on every machine.
inline constexpr std::size_t most_parts = 8;
inline constexpr std::size_t divided_from = std::size_t{8} << 20;  // bytes

inline constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

// State shared by the threads of one tensor.
struct Following {
  const Progress& progress;
  std::uint64_t all;  // bytes
  std::atomic<std::uint64_t> done = 0;
  std::atomic<bool> stop = false;
  Result<void> going = {};  // of the caller's thread, which alone calls `progress`

  void ask() {
    going = go_on(progress, done, all);
    if (!going) stop = true;
  }
};

// Works in pieces, for progress and cancellation.
template <class Work>
void take_in(std::span<const std::byte> bytes, Work& work, Following& following, bool asks) {
  while (!bytes.empty() && !following.stop) {
    const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), piece_bytes));
    work.add(piece);
    bytes = bytes.subspan(piece.size());
    following.done += piece.size();
    if (asks) following.ask();
  }
}

// `first` processes the first part, and finally merges the results of the others.
template <class Work, class Make>
void take_in_parts(std::span<const std::byte> bytes, Work& first, Following& following,
                   const Make& make) {
  const std::size_t processors =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most_parts);
  const std::size_t parts = Work::is_exact ? processors : most_parts;
  const std::size_t part_bytes = bytes.size() / parts / piece_bytes * piece_bytes;
  std::vector<std::unique_ptr<Work>> others;
  while (others.size() + 1 < parts) others.push_back(make());
  const std::thread::id caller = std::this_thread::get_id();
  static_cast<void>(parallel_for(parts, processors, [&](std::size_t i) -> Result<void> {
    const std::size_t begin = i * part_bytes;
    const std::size_t length = i + 1 < parts ? part_bytes : bytes.size() - begin;
    take_in(bytes.subspan(begin, length), i == 0 ? first : *others[i - 1], following,
            std::this_thread::get_id() == caller);
    return {};
  }));
  for (const std::unique_ptr<Work>& other : others) first.add(*other);
  if (following.going) following.ask();
}

}  // namespace weightmap::inspect
