// One fetch of a file: ranges are asked for in the order of a plan, received, kept, summed, and
// waited for.
//
// The life of a range:
//
//   plan ──▶ taken, waits for memory ──▶ on its way ──▶ arrivals ──▶ kept ──▶ done
//    ▲  prefer()                          in parts                    │ if its storage's checksum
//    └──────────── a storage once more, if its checksum differs ──────┘ agrees, or it has none
//
// The thread of run(), which is that of the RangeReader below, takes ranges out of the plan and
// receives them (Receiving). The keeper takes what has arrived (Arrivals), sums and keeps it. A
// third thread prepares the memory of the ranges that come next. All of them share the plan, what
// is kept and done, and the first failure, after which nothing more is asked for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "runtime/base/bytes/range_set.hpp"
#include "runtime/services/fetch/arrival_rate.hpp"
#include "runtime/services/fetch/arrivals.hpp"
#include "runtime/services/fetch/destination.hpp"
#include "runtime/services/fetch/fetch_plan.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "runtime/services/fetch/storage_sums.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class Fetching final : private RangeReader {
 public:
  // The source and the destination must outlive this, and nobody else calls them during run(). The
  // keys of the sums must outlive it, too. `whole` is told, if it is not nullptr, how far the file
  // is there from its front on.
  Fetching(RangeSource& source, Destination& destination, FetchPlan plan, StorageSums sums,
           std::uint64_t size, RunningSum* whole = nullptr);

  // Adds bytes that are in their place already, each once. Before run().
  void add_present(ByteRange range, std::span<const std::byte> bytes);
  // The same for bytes in no storage that has a checksum.
  void add_unsummed(ByteRange range);

  // Fetches what the plan has, and once more each storage whose checksum differs. Called once. The
  // calling thread calls `progress`. Fails as the source and the destination do; with corrupt if a
  // checksum differs again; with cancelled after cancel(), or if `progress` returned false.
  Result<void> run(const Progress& progress);

  // The following may be called from any thread.
  void cancel();
  // Puts the range, with the rest of its storages, before all others.
  void prefer(ByteRange range);
  // Prefers the range, and blocks until it has arrived and has been compared. Fails as run() does.
  Result<void> wait(ByteRange range);
  // What is in its place, compared or not. Of a run that has ended.
  const bytes::RangeSet& kept() const noexcept { return kept_; }
  // Of now: the counts of the source, and verified_bytes.
  FetchReport report() const;

 private:
  std::optional<RangeRequest> next() override;
  Result<void> arrived(const RangeRequest& request) override;
  void began(const RangeRequest& request, std::size_t bytes) override;
  bool goes_on(std::uint64_t received) override;

  Result<void> read_all();
  Result<void> read_planned();
  Result<void> wait_until_kept();
  bool is_complete() const;
  std::optional<ByteRange> take_range();
  std::uint64_t longest_range() const noexcept;
  bool wait_for_memory();

  void add_arrival(const RangeRequest& request, std::size_t end, bool is_last);
  void keep_arrivals();
  void keep(const Arrival& arrival);
  void prepare_ahead();
  void stop();

  // With the mutex locked:
  void note(ByteRange range, std::span<const StorageSums::Complete> complete);
  void compare(const StorageSums::Complete& complete);
  void fail(Error error);
  Result<void> result() const;

  // A range on its way.
  struct Begun {
    std::size_t end = 0;  // of its first bytes that are among the arrivals
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();  // they are
  };
  // Of the thread of run() alone.
  struct Receiving {
    const Progress* progress = nullptr;
    std::optional<ByteRange> taken;     // out of the plan, and waits for memory
    std::uint64_t asked_for = 0;        // ranges, by this read()
    std::uint64_t on_their_way = 0;     // of these
    std::uint64_t received_before = 0;  // bytes: present, and by earlier reads
    std::uint64_t received = 0;         // bytes, by this read
    ArrivalRate rate;
    // Of ranges on their way, by offset and length. Two of the same place are never on their way: a
    // storage is asked for again once all of it was there, and the end of a range arrives last.
    std::map<std::pair<std::uint64_t, std::size_t>, Begun> begun;
  };
  enum class Stage : std::uint8_t { reading, stopped, ended };

  RangeSource& source_;
  Destination& destination_;
  const std::uint64_t size_;
  RunningSum* const whole_;
  StorageSums sums_;  // add() only by the thread that keeps

  Receiving receiving_;
  Arrivals arrivals_;

  mutable std::mutex mutex_;         // protects the following members
  std::condition_variable changed_;  // one of them
  FetchPlan plan_;
  std::uint64_t plan_changes_ = 0;  // how often
  Stage stage_ = Stage::reading;    // stopped: no more will be asked for; ended: run() has
  std::optional<Error> failure_;    // the first one
  bytes::RangeSet kept_;            // what is in its place
  bytes::RangeSet done_;            // what is in its place, and proven if it can be
  std::set<std::uint64_t> again_;   // offsets of storages that were fetched once more
  std::uint64_t verified_bytes_ = 0;
  RangeCounts counts_;
};

}  // namespace weightmap
