#include "runtime/archive/parallel_read.hpp"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace weightmap {
namespace {

// A thread for less than this costs more than it brings.
constexpr std::size_t min_piece = std::size_t{1} << 20;

}  // namespace

Result<void> parallel_read(const bytes::Source& source, std::uint64_t offset,
                           std::span<std::byte> out, unsigned threads) {
  const std::size_t useful = std::max<std::size_t>(1, out.size() / min_piece);
  const std::size_t count = std::clamp<std::size_t>(threads, 1, useful);
  const std::size_t piece = (out.size() + count - 1) / count;
  std::vector<Result<void>> results(count);
  const auto read_piece = [&](std::size_t i) {
    const std::size_t begin = std::min(i * piece, out.size());
    const std::size_t length = std::min(piece, out.size() - begin);
    results[i] = source.read(offset + begin, out.subspan(begin, length));
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(count - 1);
    for (std::size_t i = 1; i < count; ++i) {
      try {
        helpers.emplace_back(read_piece, i);
      } catch (const std::system_error&) {
        read_piece(i);
      }
    }
    read_piece(0);
  }
  for (const Result<void>& result : results)
    if (!result) return result;
  return {};
}

}  // namespace weightmap
