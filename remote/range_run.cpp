#include "remote/range_run.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "remote/pace.hpp"
#include "remote/transfer.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::remote {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_wait{50};
constexpr milliseconds between_looks{20};
// A request is slow if it takes three times as long as the median of the last ones, and this, and
// if a new one would be sooner done than what is left of it at its own rate.
constexpr milliseconds never_slow{1'000};
constexpr std::size_t fewest_times = 4;
constexpr std::size_t most_times = 64;

std::string in_ms(milliseconds time) { return std::to_string(time.count()) + " ms"; }

// Of its attempt, which has this age, at the rate at which its bytes have come so far.
Clock::duration time_left(const Piece& piece, Clock::duration age) {
  const std::uint64_t left = piece.into.size() - piece.have;
  const std::uint64_t asked = piece.first()->asked_bytes();
  if (asked <= left) return Clock::duration::max();
  const double share = static_cast<double>(left) / static_cast<double>(asked - left);
  return std::chrono::duration_cast<Clock::duration>(age * share);
}

std::string why_incomplete(CURLcode code) {
  if (code == CURLE_OK || code == CURLE_PARTIAL_FILE) return "the body ended early";
  return words_of(code);
}

}  // namespace

RangeRun::RangeRun(Transfers& transfers, Place& store, const Pinned* pinned,
                   const RunLimits& limits, RangeCounts& counts)
    : transfers_(transfers),
      store_(store),
      pinned_(pinned),
      limits_(limits),
      tally_{counts},
      pace_(limits.connections),
      random_(std::random_device{}()),
      has_answered_(pinned != nullptr) {}

Result<void> RangeRun::run(RangeFeed& feed) {
  const BlockedSigpipe blocked;
  Clock::time_point next_look = began_;
  for (;;) {
    TRY(begin_due(feed));
    if (pieces_.empty()) return {};
    int running = 0;
    curl_multi_perform(transfers_.get(), &running);
    TRY_ASSIGN(const bool has_ended, take_ended(feed));
    if (const auto now = Clock::now(); now >= next_look) {
      TRY(look(feed, now));
      next_look = now + between_looks;
    }
    if (!has_ended)
      curl_multi_poll(transfers_.get(), nullptr, 0, static_cast<int>(longest_wait.count()),
                      nullptr);
  }
}

Result<void> RangeRun::begin_due(RangeFeed& feed) {
  const auto now = Clock::now();
  for (Piece& piece : pieces_)
    if (const auto* const due = std::get_if<Due>(&piece.state); due != nullptr && due->when <= now)
      TRY(begin(piece));
  while (may_have_next_ && pieces_.size() < pace_.limit()) {
    TRY_ASSIGN(const std::optional<Asked> asked, feed.next());
    if (!asked) {
      may_have_next_ = false;
    } else if (asked->into.empty()) {
      TRY(feed.finished({.asked = *asked}));
    } else {
      TRY(begin(pieces_.emplace_back(Piece{.ask = asked->ask, .into = asked->into})));
    }
  }
  return {};
}

// After a failure on a new connection: the old one may be what is wrong.
Result<void> RangeRun::begin(Piece& piece) {
  TRY(store_.prepare());
  piece.state = AskedFor{ask(piece, piece.failures != 0)};
  return {};
}

std::unique_ptr<Attempt> RangeRun::ask(Piece& piece, bool fresh) {
  const Pinned* pin = piece.found ? &*piece.found : pinned_;
  return std::make_unique<Attempt>(transfers_, piece, store_, pin, tally_, fresh, limits_.stall);
}

Result<bool> RangeRun::take_ended(RangeFeed& feed) {
  bool has_ended = false;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(transfers_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    has_ended = true;
    // All transfers here are attempts. The message ends with its transfer.
    auto& attempt = static_cast<Attempt&>(Transfer::of(message->easy_handle));
    TRY(end(feed, attempt, message->data.result));
  }
  return has_ended;
}

Result<void> RangeRun::end(RangeFeed& feed, Attempt& attempt, CURLcode code) {
  attempt.check_memory();
  TRY(attempt.check_header(code));
  // Without a byte of the body, only a transfer that went well has its whole header.
  if (attempt.is_judged() || code == CURLE_OK) return end_answered(feed, attempt, code);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (!is_transient(code)) return failure(ErrorCode::io, words_of(code));
  if (is_out_of_reach(code) && !has_answered_) return failure(ErrorCode::io, words_of(code));
  return ask_again(attempt, words_of(code));
}

Result<void> RangeRun::end_answered(RangeFeed& feed, Attempt& attempt, CURLcode code) {
  const Judgement& judgement = attempt.judgement();
  has_answered_ = true;
  switch (judgement.outcome) {
    case Outcome::body:
      store_.answered(attempt.generation());
      attempt.piece().redirects = 0;
      if (attempt.is_complete()) return complete(feed, attempt.piece(), Outcome::body);
      if (attempt.is_overlong())
        return failure(ErrorCode::io, "the server sends more bytes than were asked for");
      return ask_again(attempt, why_incomplete(code));
    case Outcome::empty:
      attempt.piece().found = judgement.found;
      [[fallthrough]];
    case Outcome::no_suffix:
      return complete(feed, attempt.piece(), judgement.outcome);
    case Outcome::again:
      return ask_again(attempt, judgement.why);
    case Outcome::moved:
      return follow(attempt);
    case Outcome::denied:
      return renew(attempt);
    case Outcome::failed:
      break;
  }
  has_met_no_ranges_ = judgement.ignores_ranges;
  return passed_on(judgement.error);
}

Result<void> RangeRun::complete(RangeFeed& feed, Piece& piece, Outcome outcome) {
  if (times_.size() < most_times) times_.resize(times_.size() + 1);
  times_[completed_++ % most_times] = Clock::now() - piece.first()->began();
  if (std::holds_alternative<Hedged>(piece.state)) --hedges_;
  std::list<Piece> done;
  done.splice(done.begin(), pieces_,
              std::find_if(pieces_.begin(), pieces_.end(),
                           [&](const Piece& other) { return &other == &piece; }));
  piece.state = Due{};  // ends the requests
  may_have_next_ = true;
  return feed.finished({{piece.ask, piece.into}, outcome, piece.found});
}

// `why` may be of the attempt, which ends.
Result<void> RangeRun::ask_again(Attempt& attempt, std::string why) {
  Piece& piece = attempt.piece();
  const std::chrono::seconds servers = attempt.retry_after();
  drop(attempt);
  if (piece.first() != nullptr) return {};
  TRY(count_failure(piece, why));
  ++tally_.counts.retries;
  const auto wait = backoff(piece.failures, static_cast<std::uint32_t>(random_() << 1), servers);
  piece.state = Due{Clock::now() + wait};
  return {};
}

Result<void> RangeRun::count_failure(Piece& piece, const std::string& why) const {
  if (++piece.failures <= limits_.retries) return {};
  return failure(ErrorCode::io,
                 why + "; " + std::to_string(piece.failures) + " requests for one range failed");
}

// Ends it. The other one of two goes on alone.
void RangeRun::drop(Attempt& attempt) {
  Piece& piece = attempt.piece();
  if (auto* const hedged = std::get_if<Hedged>(&piece.state)) {
    --hedges_;
    const bool is_first = &attempt == hedged->attempt.get();
    AskedFor other{std::move(is_first ? hedged->hedge : hedged->attempt)};
    piece.state = std::move(other);
  } else {
    piece.state = Due{};
  }
}

Result<void> RangeRun::follow(Attempt& attempt) {
  Piece& piece = attempt.piece();
  if (++piece.redirects > most_redirects)
    return failure(ErrorCode::io,
                   "the store redirects more than " + std::to_string(most_redirects) + " times");
  TRY(store_.follow(attempt.generation(), attempt.answer().location));
  drop(attempt);
  return {};
}

Result<void> RangeRun::renew(Attempt& attempt) {
  Piece& piece = attempt.piece();
  const std::string why = "the store refuses access (" + attempt.judgement().why + ")";
  TRY_ASSIGN(const bool is_new, store_.renew(attempt.generation()));
  if (!is_new)
    return tl::unexpected<Error>(Error{
        .code = ErrorCode::io, .message = why + "; " + store_.credentials(), .os_error = EACCES});
  drop(attempt);
  return count_failure(piece, why);
}

Result<void> RangeRun::look(RangeFeed& feed, Clock::time_point now) {
  if (!feed.goes_on(tally_.received) || (limits_.goes_on && !limits_.goes_on()))
    return failure(ErrorCode::cancelled, "cancelled");
  if (limits_.deadline.count() != 0 && now - began_ > limits_.deadline)
    return failure(ErrorCode::io, "the deadline of " + in_ms(limits_.deadline) + " has passed");
  if (limits_.until != Clock::time_point() && now > limits_.until)
    return failure(ErrorCode::io, "the deadline has passed");
  pace_.note(now - began_, tally_.received);
  for (Piece& piece : pieces_) {
    if (pinned_ != nullptr && piece.have != 0) feed.began({piece.ask, piece.into}, piece.have);
    if (const auto* const hedged = std::get_if<Hedged>(&piece.state))
      TRY(end_stalled(hedged->hedge.get(), now));
    TRY(end_stalled(piece.first(), now));
  }
  hedge_slow(now);
  return {};
}

Result<void> RangeRun::end_stalled(Attempt* attempt, Clock::time_point now) {
  if (attempt == nullptr || limits_.stall.count() == 0 ||
      now - attempt->last_byte() <= limits_.stall)
    return {};
  return ask_again(*attempt, "no byte came for " + in_ms(limits_.stall));
}

// A few at a time.
void RangeRun::hedge_slow(Clock::time_point now) {
  if (times_.size() < fewest_times) return;
  const Clock::duration median = median_time();
  const Clock::duration slow = std::max<Clock::duration>(3 * median, never_slow);
  const unsigned most = 1 + pace_.limit() / 8;
  for (Piece& piece : pieces_) {
    if (hedges_ >= most) return;
    auto* const asked = std::get_if<AskedFor>(&piece.state);
    if (asked == nullptr || piece.was_hedged) continue;
    const Clock::duration age = now - asked->attempt->began();
    if (age <= slow || time_left(piece, age) <= median) continue;
    std::unique_ptr<Attempt> hedge = ask(piece, true);
    piece.state = Hedged{std::move(asked->attempt), std::move(hedge)};
    piece.was_hedged = true;
    ++hedges_;
    ++tally_.counts.hedges;
  }
}

Clock::duration RangeRun::median_time() const {
  std::vector<Clock::duration> sorted = times_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace weightmap::remote
