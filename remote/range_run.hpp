// Ranges on their way: begun, retried, hedged and completed, in one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "remote/attempt.hpp"
#include "remote/judgement.hpp"
#include "remote/pace.hpp"
#include "remote/place.hpp"
#include "remote/transfer.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

struct RunLimits {
  unsigned connections;
  unsigned retries;
  std::chrono::milliseconds deadline;           // 0: none, as for `stall`
  std::chrono::steady_clock::time_point until;  // unset: none
  std::chrono::milliseconds stall;
  std::function<bool()> goes_on;  // or empty
};

struct Asked {
  Ask ask;
  std::span<std::byte> into;  // as long
};

struct Finished {
  Asked asked;                       // shortened to what the file has
  Outcome outcome = Outcome::body;   // or empty, or no_suffix
  std::optional<Pinned> found = {};  // where no version was known before
};

// Where ranges come from and go to.
class RangeFeed {
 public:
  virtual ~RangeFeed() = default;
  // nullopt: there is none before another one has finished.
  virtual Result<std::optional<Asked>> next() = 0;
  virtual Result<void> finished(const Finished& finished) = 0;
  // The first `bytes` of it are there for good. Only where a version is known.
  virtual void began(const Asked& /*asked*/, std::uint64_t /*bytes*/) {}
  virtual bool goes_on(std::uint64_t received) = 0;
};

class RangeRun {
 public:
  // All must outlive it. `pinned`: nullptr until the version is known.
  RangeRun(Transfers& transfers, Place& store, const Pinned* pinned, const RunLimits& limits,
           RangeCounts& counts);
  // Until all ranges have finished, or one has failed for good. Once.
  Result<void> run(RangeFeed& feed);
  // Why it has failed.
  bool has_met_no_ranges() const noexcept { return has_met_no_ranges_; }

 private:
  Result<void> begin_due(RangeFeed& feed);
  Result<void> begin(Piece& piece);
  std::unique_ptr<Attempt> ask(Piece& piece, bool fresh);

  // False if none had ended.
  Result<bool> take_ended(RangeFeed& feed);
  Result<void> end(RangeFeed& feed, Attempt& attempt, CURLcode code);
  Result<void> end_answered(RangeFeed& feed, Attempt& attempt, CURLcode code);
  Result<void> complete(RangeFeed& feed, Piece& piece, Outcome outcome);
  Result<void> ask_again(Attempt& attempt, std::string why);
  Result<void> count_failure(Piece& piece, const std::string& why) const;
  Result<void> follow(Attempt& attempt);
  Result<void> renew(Attempt& attempt);
  void drop(Attempt& attempt);

  Result<void> look(RangeFeed& feed, Clock::time_point now);
  Result<void> end_stalled(Attempt* attempt, Clock::time_point now);
  void hedge_slow(Clock::time_point now);
  Clock::duration median_time() const;

  Transfers& transfers_;
  Place& store_;
  const Pinned* pinned_;
  const RunLimits limits_;
  Tally tally_;
  Pace pace_;
  std::minstd_rand random_;
  std::list<Piece> pieces_;
  std::vector<Clock::duration> times_;  // of the last requests that completed a range, a ring
  std::size_t completed_ = 0;
  unsigned hedges_ = 0;  // on their way
  bool may_have_next_ = true;
  bool has_met_no_ranges_ = false;
  bool has_answered_;  // the store, in this run or, if a version is known, before
  const Clock::time_point began_ = Clock::now();
};

}  // namespace weightmap::remote
