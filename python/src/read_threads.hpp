// The threads that call read_into() of a source of Python's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "python/src/held_object.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::python {

// One thread, without the GIL, calls its functions.
class ReadThreads {
 public:
  struct Done {
    RangeRequest request;
    Result<void> result;
  };

  // Each keeps what Python stores by thread (threading.local) until it ends.
  ReadThreads(const HeldObject& bridge, unsigned most) : bridge_(bridge), most_(most) {}
  ~ReadThreads();  // waits for the calls that have begun

  bool are_all_busy() const noexcept { return under_way_ >= most_; }
  bool are_idle() const noexcept { return under_way_ == 0; }
  // Fails if there is no thread and the system refuses one.
  Result<void> begin(const RangeRequest& request);
  // nullopt if nothing has ended for so long.
  std::optional<Done> next_done(std::chrono::milliseconds longest);

 private:
  void work();
  std::optional<RangeRequest> take();  // nullopt: the thread is to end
  Result<void> add_thread();

  const HeldObject& bridge_;
  const unsigned most_;
  std::size_t under_way_ = 0;  // begun, and not yet returned by next_done()
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  std::deque<RangeRequest> waiting_;  // under the mutex, as what follows
  std::deque<Done> done_;
  bool is_over_ = false;
};

}  // namespace weightmap::python
