// Reading a file past the page cache, many pieces at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mmap/file.hpp"
#include "mmap/read_queue.hpp"
#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Each read that is under way has a thread, as far as the system has threads to give; without any,
// next() reads. That needs no more of the system than pread(), and what waits for a remote file
// system costs nothing.
//
// Where the file system refuses reads past its cache, they go through it, and why_not_direct() says
// so. The file must outlive the reader. Nothing is being read any more when it is gone.
class DirectReader final : public ReadQueue {
 public:
  explicit DirectReader(const File& file);
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;
  ~DirectReader() override;

  // The memory is whole pages that begin at a page, the offset a multiple of the page size inside
  // the file. What lies beyond the end of the file becomes zero, as in a mapping.
  void begin(const QueuedRead& read) override;

  // Fails with io, at the first byte that is missing, if the file was truncated or the disk failed.
  Result<EndedRead> next() override;

  // Empty as long as the file system has not refused.
  const std::string& why_not_direct() const noexcept { return why_not_direct_; }

 private:
  struct Ended {
    QueuedRead read;
    ReadDepth::Time when;
    Result<bool> past_cache;
    std::exception_ptr failure;  // no memory for an error
  };

  void work();
  void run_first(std::unique_lock<std::mutex>& lock);
  // Answer whether it was read past the page cache.
  Result<bool> read_piece(const QueuedRead& read, bool direct) const;
  Result<bool> read_past_cache(const QueuedRead& read) const;

  const File& file_;
  UniqueFd direct_;  // none if that is refused
  // These three are used by the caller's thread only.
  std::string why_not_direct_;
  std::vector<std::thread> threads_;
  std::size_t under_way_ = 0;  // waiting, being read, or ended

  std::mutex mutex_;  // over what follows
  std::condition_variable begun_;
  std::condition_variable some_ended_;
  std::deque<QueuedRead> waiting_;  // for a thread
  std::vector<Ended> ended_;        // has room for all that are under way
  bool is_direct_ = false;
  bool is_closed_ = false;
};

}  // namespace weightmap::os
