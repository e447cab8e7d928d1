#include "runtime/services/fetch/fetching.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/storage_offsets.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

// How often the progress is told while nothing arrives.
constexpr std::chrono::milliseconds turn{100};
// What is kept of a range that is on its way begins and ends with a multiple of this; with a page
// if nothing was kept of it for so long.
constexpr std::uint64_t kept_unit = std::uint64_t{1} << 20;
constexpr std::chrono::milliseconds longest_unkept{500};
// What is on its way at a time arrives in so long, in ranges that are no shorter than that: of a
// source that does not tell what began to arrive, which a kill would lose; and of a file that is
// summed, since its sum waits for the first of these ranges, and catches up with a few of the
// latter size in no time.
constexpr std::chrono::milliseconds lost_at_most{1500};
constexpr std::chrono::milliseconds unsummed_at_most{250};
constexpr std::uint64_t shortest_range = 256 * 1024;
constexpr std::uint64_t shortest_summed = std::uint64_t{4} << 20;
// Ranges whose memory is prepared.
constexpr std::size_t ahead = 16;

Error wrong_sum(const StorageSums::Complete& complete) {
  const SummedStorage& storage = *complete.storage;
  return {ErrorCode::corrupt,
          "record " + bytes::quote(zip::storage_record(storage.key)) + " of " +
              std::to_string(storage.range.length) + " bytes" +
              zip::crc_mismatch(complete.crc32, storage.crc32) + ", also when fetched once more",
          storage.range.offset,
          {}};
}

// An exception would wait for the other threads for ever, or end the program.
Result<void> read_without_exceptions(RangeSource& source, RangeReader& reader) {
  try {
    return source.read(reader);
  } catch (const std::exception& error) {
    return failure(ErrorCode::io, std::string("cannot be read: ") + error.what());
  }
}

}  // namespace

Fetching::Fetching(RangeSource& source, Destination& destination, FetchPlan plan, StorageSums sums,
                   std::uint64_t size, RunningSum* whole)
    : source_(source),
      destination_(destination),
      size_(size),
      whole_(whole),
      sums_(std::move(sums)),
      plan_(std::move(plan)),
      counts_(source.counts()) {}

void Fetching::add_present(ByteRange range, std::span<const std::byte> bytes) {
  const std::vector<StorageSums::Complete> complete = sums_.add(range.offset, bytes);
  const std::lock_guard lock(mutex_);
  receiving_.received_before += range.length;
  note(range, complete);
}

void Fetching::add_unsummed(ByteRange range) {
  const std::lock_guard lock(mutex_);
  receiving_.received_before += range.length;
  note(range, {});
}

Result<void> Fetching::run(const Progress& progress) {
  receiving_.progress = &progress;
  receiving_.rate = {std::chrono::steady_clock::now(), receiving_.received_before};
  Result<void> read;
  try {
    const std::jthread keeper([this] { keep_arrivals(); });
    const struct Stop {  // so that the keeper ends, if there is no preparer
      Fetching& fetching;
      ~Stop() { fetching.stop(); }
    } at_end{*this};
    const std::jthread preparer([this] { prepare_ahead(); });
    read = read_all();
    stop();
  } catch (const std::system_error& error) {
    read = failure(ErrorCode::io, std::string("cannot start a thread: ") + error.what());
  }
  const RangeCounts counts = source_.counts();
  const std::lock_guard lock(mutex_);
  if (!read) fail(std::move(read.error()));
  counts_ = counts;
  stage_ = Stage::ended;
  changed_.notify_all();
  return result();
}

Result<void> Fetching::read_all() {
  for (;;) {
    TRY(read_planned());
    TRY(wait_until_kept());
    if (is_complete()) break;
  }
  goes_on(0);
  const std::lock_guard lock(mutex_);
  return result();
}

// One read ends before the plan does if there is no memory, or after a failure.
Result<void> Fetching::read_planned() {
  if (is_complete()) return {};
  receiving_.asked_for = 0;
  TRY(about_file(read_without_exceptions(source_, *this), source_.name()));
  receiving_.received_before += std::exchange(receiving_.received, 0);
  if (receiving_.asked_for != 0 && receiving_.on_their_way == 0) return {};
  const std::lock_guard lock(mutex_);
  TRY(result());
  return failure(ErrorCode::io, "its source ended a read before all bytes had arrived");
}

bool Fetching::is_complete() const {
  const std::lock_guard lock(mutex_);
  return plan_.is_empty() && !receiving_.taken;
}

Result<void> Fetching::wait_until_kept() {
  for (;;) {
    const bool is_kept = arrivals_.wait_until_kept(turn);
    {
      const std::lock_guard lock(mutex_);
      TRY(result());
    }
    if (is_kept) return {};
    goes_on(0);
  }
}

std::optional<RangeRequest> Fetching::next() {
  while (receiving_.taken || (receiving_.taken = take_range())) {
    const Result<std::optional<std::span<std::byte>>> memory =
        destination_.memory_for(*receiving_.taken);
    if (!memory) {
      const std::lock_guard lock(mutex_);
      fail(memory.error());
      return std::nullopt;
    }
    if (*memory) {
      ++receiving_.asked_for;
      ++receiving_.on_their_way;
      return RangeRequest{std::exchange(receiving_.taken, std::nullopt)->offset, **memory};
    }
    if (!wait_for_memory()) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<ByteRange> Fetching::take_range() {
  const std::lock_guard lock(mutex_);
  if (failure_) return std::nullopt;
  ++plan_changes_;
  changed_.notify_all();
  return plan_.next(longest_range());
}

std::uint64_t Fetching::longest_range() const noexcept {
  if (source_.tells_began() && whole_ == nullptr) return size_;
  const auto [time, shortest] = whole_ != nullptr ? std::pair(unsummed_at_most, shortest_summed)
                                                  : std::pair(lost_at_most, shortest_range);
  return std::max(shortest, receiving_.rate.bytes_in(time) / (receiving_.on_their_way + 1));
}

// Returns false if none will come before more has arrived, or after a failure.
bool Fetching::wait_for_memory() {
  return arrivals_.wait_for_one(turn) && goes_on(receiving_.received);
}

Result<void> Fetching::arrived(const RangeRequest& request) {
  --receiving_.on_their_way;
  add_arrival(request, request.into.size(), true);
  const std::lock_guard lock(mutex_);
  return result();
}

// But for the last unit, which comes with arrived().
void Fetching::began(const RangeRequest& request, std::size_t bytes) {
  const Begun& begun = receiving_.begun[{request.offset, request.into.size()}];
  const bool is_late = std::chrono::steady_clock::now() - begun.since >= longest_unkept;
  const std::uint64_t unit = is_late ? os::page_bytes() : kept_unit;
  const std::uint64_t last = request.offset + request.into.size() - 1;
  const std::uint64_t end = std::min(request.offset + bytes, last) / unit * unit;
  if (end > request.offset + begun.end) add_arrival(request, end - request.offset, false);
}

void Fetching::add_arrival(const RangeRequest& request, std::size_t end, bool is_last) {
  const std::pair place(request.offset, request.into.size());
  const std::size_t begin = receiving_.begun[place].end;
  if (is_last)
    receiving_.begun.erase(place);
  else
    receiving_.begun[place] = {end};
  const RangeRequest part{request.offset + begin, request.into.subspan(begin, end - begin)};
  arrivals_.add({part, request, is_last});
}

bool Fetching::goes_on(std::uint64_t received) {
  receiving_.received = std::max(receiving_.received, received);
  const std::uint64_t done = std::min(size_, receiving_.received_before + receiving_.received);
  receiving_.rate.note(std::chrono::steady_clock::now(), done);
  Result<void> asked = weightmap::go_on(*receiving_.progress, done, size_);
  const RangeCounts counts = source_.counts();  // perhaps in Python, which has a lock of its own
  const std::lock_guard lock(mutex_);
  counts_ = counts;
  if (!asked) fail(std::move(asked.error()));
  return !failure_;
}

void Fetching::keep_arrivals() {
  for (;;) {
    if (arrivals_.would_wait())
      if (Result<void> settled = destination_.settle(); !settled) {
        const std::lock_guard lock(mutex_);
        fail(std::move(settled.error()));
      }
    const std::optional<Arrival> arrival = arrivals_.take();
    if (!arrival) return;
    keep(*arrival);
    arrivals_.kept();
  }
}

// After a failure too: a later fetch need not receive it again.
void Fetching::keep(const Arrival& arrival) {
  const ByteRange range{arrival.part.offset, arrival.part.into.size()};
  const std::vector<StorageSums::Complete> complete = sums_.add(range.offset, arrival.part.into);
  Result<void> kept = destination_.keep(range, arrival.part.into);
  if (arrival.is_last)
    destination_.take_back({arrival.whole.offset, arrival.whole.into.size()}, arrival.whole.into);
  const std::lock_guard lock(mutex_);
  if (kept)
    note(range, complete);
  else
    fail(std::move(kept.error()));
  changed_.notify_all();
}

void Fetching::prepare_ahead() {
  std::unique_lock lock(mutex_);
  while (stage_ == Stage::reading) {
    const std::uint64_t seen = plan_changes_;
    const std::vector<ByteRange> coming = plan_.upcoming(ahead);
    lock.unlock();
    const bool worked = std::any_of(coming.begin(), coming.end(), [this](const ByteRange& range) {
      return destination_.prepare(range);
    });
    lock.lock();
    if (worked) continue;  // what comes next may have changed
    changed_.wait(lock, [&] { return stage_ != Stage::reading || plan_changes_ != seen; });
  }
}

void Fetching::stop() {
  arrivals_.close();
  const std::lock_guard lock(mutex_);
  stage_ = Stage::stopped;
  changed_.notify_all();
}

void Fetching::note(ByteRange range, std::span<const StorageSums::Complete> complete) {
  kept_.add(range);
  for (const ByteRange& part : sums_.without_storages(range)) done_.add(part);
  for (const StorageSums::Complete& storage : complete) compare(storage);
  if (whole_ != nullptr) whole_->reach(done_.end_of_first());
}

void Fetching::compare(const StorageSums::Complete& complete) {
  const SummedStorage& storage = *complete.storage;
  if (complete.crc32 == storage.crc32) {
    done_.add(storage.range);
    verified_bytes_ += storage.range.length;
  } else if (again_.insert(storage.range.offset).second) {
    plan_.add_again(storage.range);
    ++plan_changes_;
  } else {
    fail(about_file(wrong_sum(complete), source_.name()).value());
  }
}

void Fetching::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
  changed_.notify_all();
}

Result<void> Fetching::result() const {
  if (failure_) return tl::unexpected<Error>(*failure_);
  return {};
}

void Fetching::cancel() {
  const std::lock_guard lock(mutex_);
  fail({ErrorCode::cancelled, "was cancelled", Error::no_offset, {}});
}

void Fetching::prefer(ByteRange range) {
  const std::lock_guard lock(mutex_);
  if (done_.contains(range)) return;
  plan_.put_first(sums_.with_storages(range));
  ++plan_changes_;
  changed_.notify_all();
}

Result<void> Fetching::wait(ByteRange range) {
  prefer(range);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.contains(range) || failure_ || stage_ == Stage::ended; });
  if (done_.contains(range)) return {};
  return result();
}

FetchReport Fetching::report() const {
  const std::lock_guard lock(mutex_);
  FetchReport report;
  report.counts = counts_;
  report.file_bytes = size_;
  report.verified_bytes = verified_bytes_;
  return report;
}

}  // namespace weightmap
