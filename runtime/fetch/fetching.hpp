// One fetch of a file: ranges are asked for in the order of a plan, received, kept, summed, and
// waited for.
//
// The thread of run() receives. Another one does for each range what is left when it has arrived, a
// third one prepares the memory of those that come next.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "runtime/bytes/range_set.hpp"
#include "runtime/fetch/destination.hpp"
#include "runtime/fetch/fetch_plan.hpp"
#include "runtime/fetch/storage_sums.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/range_source.hpp"

namespace weightmap {

class Fetching final : private RangeReader {
 public:
  // The source and the destination must outlive this, and nobody else calls them during run(). The
  // keys of the sums must outlive it, too.
  Fetching(RangeSource& source, Destination& destination, FetchPlan plan, StorageSums sums,
           std::uint64_t size);

  // Adds bytes that are in their place already, each once. Before run().
  void add_present(ByteRange range, std::span<const std::byte> bytes);
  // The same for bytes that nobody compares or waits for.
  void add_unsummed(std::uint64_t bytes) noexcept;

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
  bool wait_for_memory();

  void add_arrival(const RangeRequest& request, std::size_t end, bool is_last);
  void keep_arrivals();
  void prepare_ahead();
  void stop();

  // With the mutex locked:
  bool is_busy() const noexcept { return is_keeping_ || !arrivals_.empty(); }
  void keep_first(std::unique_lock<std::mutex>& lock);
  void settle(std::unique_lock<std::mutex>& lock);
  void note(ByteRange range, std::span<const StorageSums::Complete> complete);
  void compare(const StorageSums::Complete& complete);
  void fail(Error error);
  Result<void> result() const;

  // A part of a range, which is kept while the rest is on its way; or the last part.
  struct Arrival {
    RangeRequest part;
    RangeRequest whole;
    bool is_last;
  };

  RangeSource& source_;
  Destination& destination_;
  const std::uint64_t size_;
  StorageSums sums_;  // add() only by the thread that keeps

  // Of the thread of run():
  const Progress* progress_ = nullptr;
  std::optional<ByteRange> taken_;     // out of the plan, and waits for memory
  std::uint64_t asked_for_ = 0;        // ranges, by this read()
  std::uint64_t on_their_way_ = 0;     // of these
  std::uint64_t received_before_ = 0;  // bytes: present, and by earlier reads
  std::uint64_t received_ = 0;         // bytes, by this read
  // Of ranges on their way, by offset and length: the first bytes that are among the arrivals. Two
  // of the same place are never on their way: a storage is asked for again once all of it was
  // there, and the end of a range arrives last.
  std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> begun_;

  mutable std::mutex mutex_;         // protects the following members
  std::condition_variable changed_;  // one of them
  FetchPlan plan_;
  std::uint64_t plan_changes_ = 0;  // how often
  std::deque<Arrival> arrivals_;    // that are to be kept
  bool is_keeping_ = false;         // one more
  bool is_stopped_ = false;         // no more will arrive
  bool has_ended_ = false;          // run()
  std::optional<Error> failure_;    // the first one
  bytes::RangeSet kept_;            // what is in its place
  bytes::RangeSet done_;            // what is in its place, and proven if it can be
  std::set<std::uint64_t> again_;   // offsets of storages that were fetched once more
  std::uint64_t verified_bytes_ = 0;
  RangeCounts counts_;
};

}  // namespace weightmap
