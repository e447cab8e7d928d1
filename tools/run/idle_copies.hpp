// Touches what was read into the page cache, on processors that nobody else wants.
//
// In a virtual machine whose host takes back free memory a page that the disk has filled costs the
// first processor that touches it microseconds (runtime/system/facilities.hpp). A copy pays that
// for the command. It takes a processor as long as the reading of a fast disk, so threads do it
// that run only where a processor would be idle (SCHED_IDLE): the command gets pages that it has to
// touch first by itself, but never waits for a processor. Not where processor time is rationed: an
// idle processor is the command's share of a later moment there.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::cli::start {

class IdleCopies {
 public:
  // Starts threads where touching is slow and idle time costs nothing, and none elsewhere.
  IdleCopies();
  // Does not wait for what is left to be copied.
  ~IdleCopies();
  IdleCopies(const IdleCopies&) = delete;
  IdleCopies& operator=(const IdleCopies&) = delete;

  // Forgets the part if it is of one more file than may be open for this. Any thread may call.
  void add(const std::shared_ptr<const os::File>& file, const ByteRange& part);

 private:
  struct Waiting {
    std::shared_ptr<const os::File> file;
    std::deque<ByteRange> parts;  // never empty
  };
  struct Part {
    std::shared_ptr<const os::File> file;
    ByteRange range;
  };

  void work();
  Part next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace weightmap::cli::start
