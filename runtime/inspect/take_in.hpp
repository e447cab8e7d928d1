// The bytes of a tensor, handed to what counts them: piece by piece, by one thread or several.
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

// Large tensors are taken in by several threads. Where the order of additions shows in the last
// digit, always in as many parts, so that statistics are the same whatever the processors are.
inline constexpr std::size_t most_parts = 8;
inline constexpr std::size_t divided_from = std::size_t{8} << 20;  // bytes

inline constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

// What the threads of one tensor share.
struct Following {
  const Progress& progress;
  std::uint64_t all;  // bytes
  std::atomic<std::uint64_t> done = 0;
  std::atomic<bool> stop = false;
  Result<void> going = {};  // of the caller's thread, which alone asks `progress`

  void ask() {
    going = go_on(progress, done, all);
    if (!going) stop = true;
  }
};

// Piece by piece, so that somebody may follow or stop it.
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

// `first` takes the first part, and what the others have taken in the end.
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
