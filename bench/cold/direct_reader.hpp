// What the disk can do: reads past the page cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/cold/stopwatch.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// One buffer of large pages for each of the two threads, touched on construction and used again
// for each read: no page is allocated while the clock runs.
class DirectBuffers {
 public:
  static constexpr std::size_t size = std::size_t{4} << 20;

  DirectBuffers();
  std::byte* get(std::size_t index) const noexcept { return buffers_[index].get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::array<std::unique_ptr<std::byte, Free>, 2> buffers_;
};

// Reads tensors of the checkpoint in this order with O_DIRECT, two reads under way at any time so
// that the disk always has something to do, and answers their checksum. Fails with io where the
// file system has no O_DIRECT, or a read fails.
Result<std::uint64_t> read_directly(const Checkpoint& checkpoint,
                                    std::span<const NamedTensor> tensors,
                                    const DirectBuffers& buffers, Stopwatch& watch);

}  // namespace weightmap::cli::bench
