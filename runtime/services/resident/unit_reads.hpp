// Threads that read units, those that are waited for first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/resident/placed_unit.hpp"
#include "runtime/system/file/direct_reader.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// One unit that is on its way.
struct UnitRead {
  std::uint32_t unit;
  std::byte* slot = nullptr;  // none: into the page cache, and the pages are mapped
  bool is_ahead = false;      // nobody had asked for it when it began
  std::vector<SlotRead> parts;
  std::atomic<std::size_t> left{0};  // parts
  std::atomic<std::uint64_t> read_bytes{0};
  // Any thread; the error is final once is_done is set.
  std::atomic<bool> is_done{false};
  std::mutex mutex;
  std::optional<Error> error;

  bool has_failed() {
    const std::scoped_lock lock(mutex);
    return error.has_value();
  }
};

class UnitReads {
 public:
  // `finished` is called by the thread that read the last part; `more` by one that has nothing else
  // to do: it returns a read to begin with, or nullptr until look_for_more().
  using Finished = std::function<void(UnitRead&)>;
  using More = std::function<std::shared_ptr<UnitRead>()>;
  // The checkpoint must outlive it.
  UnitReads(const Checkpoint::State& checkpoint, Finished finished, More more);
  UnitReads(const UnitReads&) = delete;
  UnitReads& operator=(const UnitReads&) = delete;
  ~UnitReads() { stop(); }

  // As many threads as the file systems of these units need. Fails with io if the system refuses.
  Result<void> start(std::span<const PlacedUnit> units);
  // Waits for the parts that are being read; what has not begun fails with cancelled.
  void stop() noexcept;

  void add(const std::shared_ptr<UnitRead>& read);
  // Somebody waits for these units, which are by number: what is known of them comes before what is
  // read ahead.
  void want(std::span<const std::uint32_t> units) noexcept;
  // What of reads ahead into slots has not begun fails with cancelled, if `may_go` says so of its
  // unit. True if there was anything.
  bool give_up(const std::function<bool(std::uint32_t)>& may_go);
  void look_for_more();
  std::string why_not_direct() const;

 private:
  struct Task {
    std::shared_ptr<UnitRead> read;
    std::size_t part;
  };
  struct Scratch;
  static std::list<Task> tasks_of(const std::shared_ptr<UnitRead>& read);
  template <class IsOne>
  void move_ahead(std::list<Task>& to, const IsOne& is_one);
  void cancel(const std::list<Task>& tasks, const char* why);

  void run() noexcept;
  bool take(std::unique_lock<std::mutex>& lock, Task& task);
  std::list<Task> find_more() noexcept;
  void work_on(const Task& task, Scratch& scratch);
  Result<void> read_guarded(UnitRead& read, const SlotRead& part, Scratch& scratch) noexcept;
  Result<void> read_part(UnitRead& read, const SlotRead& part, Scratch& scratch);
  Result<void> read_into_slot(UnitRead& read, const SlotRead& part, Scratch& scratch);
  Result<void> check_files(const UnitRead& read) const;
  void end_part(UnitRead& read);

  const Checkpoint::State& checkpoint_;
  const Finished finished_;
  const More more_;
  std::map<const SourceFile*, std::unique_ptr<os::DirectReader>> readers_;  // filled by start()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Protected by the mutex.
  std::list<Task> wanted_, ahead_;  // whose parts change places without memory
  bool may_have_more_ = false, is_stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace weightmap
