// Measures the disk by reads past the page cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "tools/bench/cold/stopwatch.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// A buffer of huge pages for each of the two threads, touched on construction and reused for each
// read, so that no page is allocated during the measurement.
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

// Reads the tensors in this order with O_DIRECT, always two reads at a time to keep the disk busy,
// and returns their checksum. Fails with io if the file system lacks O_DIRECT, or a read fails.
Result<std::uint64_t> read_directly(const Checkpoint& checkpoint,
                                    std::span<const NamedTensor> tensors,
                                    const DirectBuffers& buffers, Stopwatch& watch);

}  // namespace weightmap::cli::bench
