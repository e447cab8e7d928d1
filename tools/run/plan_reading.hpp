// Brings the files of a plan into the page cache beside a command that will use them.
//
// The threads of a reading hardly compute: large files go where nobody copies them (page_sink.hpp),
// but where a processor is idle (idle_copies.hpp). There are a few at first, so that a read of the
// command never waits behind many, and as many more as make the reading faster: a local disk has
// its rate with few reads in flight, a file system of a network with many, so that a reading of one
// begins with more. All of them may read the same large file.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/run/idle_copies.hpp"
#include "tools/run/page_sink.hpp"
#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {

struct ReadCounts {
  std::size_t files_read = 0;
  std::size_t files_changed = 0;  // since the plan was made; such a file is left out
  std::size_t files_missing = 0;  // or not readable, or no regular file
  std::uint64_t bytes = 0;        // read that were not cached before
  bool was_cached = false;        // a sample was, so nothing else was looked at
  bool ran_out_of_memory = false;
};

// Opens a planned file. None if it is not there, none that may be opened, or one that the command's
// open would drop again. `has_changed` says that it is another version.
std::optional<os::File> open_planned(const PlannedFile& planned, bool& has_changed);
std::vector<ByteRange> parts_of(const PlannedFile& file);

class PlanReading {
 public:
  static constexpr std::size_t of_a_disk = 4, of_a_server = 16;  // threads at first

  // Ends early if `stopped` becomes true. Both must outlive it.
  PlanReading(const StartPlan& plan, const std::atomic<bool>& stopped,
              std::size_t first_threads = of_a_disk);

  // Returns once all is read that fits into memory.
  ReadCounts run();

 private:
  // A file that all of its readers open once, so that the system sees one reader in file order, for
  // which it makes large pages. It is closed with the last unit.
  struct SharedFile {
    SharedFile(const PlannedFile& of, std::vector<ByteRange> all)
        : planned(of), parts(std::move(all)) {}

    const PlannedFile& planned;
    const std::vector<ByteRange> parts;
    std::once_flag once{};
    std::shared_ptr<const os::File> file{};
    std::optional<mmap::CachedPages> before{};  // what was cached
    std::atomic<bool> is_left_out{false};
  };
  // What one thread reads at once.
  struct Unit {
    std::shared_ptr<SharedFile> shared;
    std::vector<ByteRange> parts;
  };

  struct Progress {
    std::uint64_t bytes, units;
    std::chrono::steady_clock::time_point at;
  };

  // None if all was given out. So no size that a plan names takes memory, and no time unless it is
  // that of the file.
  std::optional<Unit> next_unit();
  Progress progress() const { return {looked_at_, units_read_, std::chrono::steady_clock::now()}; }
  void add_threads(std::size_t count);
  void count_running(int change);
  bool wait_for_end();
  void work(std::size_t thread);
  bool is_over() const noexcept { return stopped_ || is_short_; }
  void read(const Unit& unit, PageSink& sink);
  void open(SharedFile& shared);
  void look_into_folder_of(const std::string& path);
  void look_at_memory(std::uint64_t more_bytes);

  const StartPlan& plan_;
  const std::atomic<bool>& stopped_;
  const std::size_t first_threads_;
  const std::uint64_t budget_bytes_;
  std::atomic<std::size_t> wanted_threads_{0};
  std::atomic<std::size_t> files_{0}, changed_{0}, missing_{0};
  std::atomic<std::uint64_t> bytes_{0}, looked_at_{0}, units_read_{0};
  std::atomic<bool> is_short_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  // Protected by the mutex.
  int running_ = 0;  // threads
  // Where the next unit begins: behind so many files, parts of the current one, and bytes of a
  // part.
  std::size_t files_begun_ = 0, parts_given_ = 0;
  std::uint64_t bytes_given_ = 0;
  std::shared_ptr<SharedFile> current_;
  std::set<std::string> folders_;
  IdleCopies copies_;
  std::vector<std::jthread> threads_;
};

}  // namespace weightmap::cli::start
