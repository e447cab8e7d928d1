// Ways of bringing a file in that a Warmer does not take, to compare it with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "bench/cold/raw_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

enum class Prefetch : std::uint8_t {
  fault,       // touches each page
  read,        // pread into a scratch buffer: fills the page cache and maps nothing
  readahead,   // readahead(2); does not wait for the disk, and leaves 4 KiB pages behind
  willneed,    // MADV_WILLNEED; likewise
  sequential,  // touches each page under MADV_SEQUENTIAL
};

// Two threads that take the tensors in steps of 2 MiB, as a Warmer does. What fails is left to the
// page faults of whoever reads. The checkpoint must outlive it.
class Prefetcher {
 public:
  static Result<std::unique_ptr<Prefetcher>> start(const Checkpoint& checkpoint,
                                                   std::span<const NamedTensor> tensors,
                                                   Prefetch method);
  ~Prefetcher();  // waits until all is brought in
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

 private:
  struct Step {
    std::span<const std::byte> bytes;  // whole pages
    int file;
    std::uint64_t offset;  // in the file
  };

  Prefetcher(std::vector<RawFile> files, Prefetch method);
  void add(const Checkpoint& checkpoint, const NamedTensor& tensor);
  void run();
  void bring_in(const Step& step, std::vector<char>& scratch) const;

  const std::vector<RawFile> files_;
  const Prefetch method_;
  std::vector<Step> steps_;  // complete before the threads begin
  std::atomic<std::size_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace weightmap::cli::bench
