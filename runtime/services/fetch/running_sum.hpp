// The SHA-256 of a file that arrives: its front is summed while the rest is on its way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Has a thread, so that whoever keeps what arrives is not held up. Bytes that arrive behind a gap
// are summed once that is closed, and read for it from where they are kept.
class RunningSum {
 public:
  // The file must outlive it, and may be read by another thread meanwhile.
  explicit RunningSum(const bytes::ByteSource& file);
  // The same of memory, which is summed where it is.
  explicit RunningSum(std::span<const std::byte> memory);
  RunningSum(const RunningSum&) = delete;
  RunningSum& operator=(const RunningSum&) = delete;
  ~RunningSum();

  // All bytes before `end` are in their place, and stay as they are. Any thread.
  void reach(std::uint64_t end);
  // All are. Blocks until they are summed; returns the same each time. Fails as the file does, with
  // io if there was no thread, with cancelled if the progress says so.
  Result<bytes::Sha256::Digest> finish(const Progress& progress = {});

 private:
  RunningSum(const bytes::ByteSource* file, std::span<const std::byte> memory, std::uint64_t size);
  void run();

  const bytes::ByteSource* const file_;      // nullptr: it is memory
  const std::span<const std::byte> memory_;  // empty: it is a file
  const std::uint64_t size_;
  std::vector<std::byte> buffer_;  // of the thread, for a file
  std::mutex mutex_;               // protects the following members
  std::condition_variable changed_;
  std::uint64_t end_ = 0;
  bool is_over_ = false;  // nobody wants it any more
  std::optional<Result<bytes::Sha256::Digest>> result_;
  std::thread thread_;
};

}  // namespace weightmap
