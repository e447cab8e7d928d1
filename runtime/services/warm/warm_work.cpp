#include "runtime/services/warm/warm_work.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "mmap/page_loader.hpp"
#include "mmap/pages/file_window.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/warm/slice_ranges.hpp"
#include "runtime/services/warm/warm_plan.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/memory/lock_share.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/process/futex.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {
namespace {

constexpr unsigned max_threads = 64, disk_threads = 2, server_threads = 32;

tl::unexpected<Error> refused(std::string why) {
  return failure(ErrorCode::invalid_argument, std::move(why));
}

Result<void> check_ranges(const WarmOptions& options) {
  if (options.threads > max_threads)
    return refused("threads must be at most " + std::to_string(max_threads) + ", not " +
                   std::to_string(options.threads));
  if (options.step_bytes < os::large_page)
    return refused("step_bytes must be at least 2 MiB, not " + std::to_string(options.step_bytes));
  return {};
}

Result<void> check_combination(const WarmOptions& options) {
  if (!options.slices.empty() && (!options.tensors.empty() || options.follow))
    return refused("slices cannot be combined with tensors or follow");
  if (options.follow && options.lock) return refused("lock cannot be combined with follow");
  if (options.for_others && options.lock)
    return refused("lock cannot be combined with for_others, which maps nothing");
  if (options.follow && options.one_reader)
    return refused("one_reader cannot be combined with follow: all would wait for one consumer");
  if (options.drop_behind && !options.follow) return refused("drop_behind needs follow");
  if (options.drop_behind && options.verify_crc)
    return refused(
        "drop_behind cannot be combined with verify_crc: it could drop what is not summed yet");
  return {};
}

// Fails with invalid_argument, naming the option, for values out of range and options that exclude
// one another; with unsupported for options that do not work with this checkpoint.
Result<void> check_options(const WarmOptions& options, const CheckpointInfo& info) {
  TRY(check_ranges(options));
  TRY(check_combination(options));
  if (options.drop_behind && info.writable && info.sharing == Sharing::private_)
    return refused(
        "drop_behind cannot be combined with a private writable checkpoint: what was written to it "
        "would be lost");
  return {};
}

unsigned threads_for(const os::File& file) {
  const std::optional<os::Mount> mount = os::mount_of(file);
  return mount && os::is_remote(mount->file_system) ? server_threads : disk_threads;
}

// What a limit counts as used, though it is what the warm-up wants in memory.
std::uint64_t bytes_there(const Sources& sources) {
  std::uint64_t bytes = 0;
  for (const SourceFile& source : sources) bytes += mmap::bytes_living_in_memory(source.file);
  return bytes;
}

// Sets the budget and its reason in the report. `most` is what the warm-up can use; with `lock` the
// share is promised so much of it as fits, until finish().
void choose_budget(const WarmOptions& options, const Sources& sources, std::uint64_t most,
                   os::LockShare& share, WarmReport& report) {
  os::MemoryLimit limit;
  const auto look = [&] {
    if (options.budget_bytes == 0) limit = os::memory_limit();
    limit.there = bytes_there(sources);
    return limit;
  };
  if (options.budget_bytes != 0) most = std::min(most, options.budget_bytes);
  const std::uint64_t room = options.lock ? share.promise(most, look) : look().usable();
  report.budget_bytes = options.budget_bytes != 0 ? options.budget_bytes : room;
  report.budget_reason = limit.reason;
}

// The number of steps that are mapped at once if none waits for the disk: fewer system calls map a
// cached file faster. More would occupy a processor for long if the cache holds small pages.
constexpr std::size_t cached_steps = 4;

// Of all tensors but those of which single pages are wanted.
std::vector<std::size_t> in_file_order(Checkpoint::State& state, const catalog::Catalog& catalog) {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < catalog.size(); ++i)
    if (catalog[i].extent == 0 ||
        !state.not_random({catalog[i].position, catalog[i].extent}).empty())
      tensors.push_back(i);
  std::stable_sort(tensors.begin(), tensors.end(), [&catalog](std::size_t a, std::size_t b) {
    return catalog[a].position < catalog[b].position;
  });
  return tensors;
}

Result<std::vector<ByteRange>> ranges_of(const Checkpoint::State& state,
                                         const std::vector<std::size_t>& tensors) {
  const std::size_t count = state.listed().size();
  std::vector<ByteRange> ranges;
  ranges.reserve(tensors.size());
  for (std::size_t index : tensors) {
    if (index >= count)
      return failure(ErrorCode::invalid_argument, "there is no tensor " + std::to_string(index) +
                                                      " of " + std::to_string(count));
    const TensorPlace place = state.tensors.at(index);
    if (place.fault != nullptr) return tl::unexpected<Error>(*place.fault);
    ranges.push_back({place.entry->position, place.entry->extent});
  }
  return ranges;
}

// At least what is read of them: whole pages, each once.
std::uint64_t bytes_of(const std::vector<ByteRange>& ranges) {
  std::uint64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.length + 2 * os::large_page;
  return bytes;
}

}  // namespace

WarmWork::WarmWork(State& state) : state_(state), forks_(os::fork_count()) {}

WarmWork::~WarmWork() {
  cancel();
  join();
}

Result<std::unique_ptr<WarmWork>> WarmWork::start(State& state, const WarmOptions& options,
                                                  Progress sums) {
  os::count_forks();
  TRY(state.check_view_memory());
  TRY(check_options(options, state.info));
  if (state.is_in_memory())
    return failure(ErrorCode::unsupported, "memory is there already: only files are warmed");
  std::unique_ptr<WarmWork> work(new WarmWork(state));
  TRY(work->prepare(options));
  try {
    work->begin(options, std::move(sums));
  } catch (const std::system_error& refusal) {  // the limit on threads; those that started end here
    return failure(ErrorCode::io, std::string("cannot begin a thread: ") + refusal.what());
  }
  return work;
}

Result<void> WarmWork::prepare(const WarmOptions& options) {
  if (options.verify_crc) {
    TRY_ASSIGN(summed_, state_.placed());
  }
  method_ = mmap::best_load_method(state_.mapping);
  if (method_ == mmap::LoadMethod::read)
    report_.method_reason = "this kernel does not know MADV_POPULATE_READ";
  if (options.for_others) {
    method_ = mmap::LoadMethod::read;
    report_.method_reason = "it is for other processes";
  }
  report_.method = mmap::to_string(method_);
  if (options.lock && method_ == mmap::LoadMethod::read)
    return failure(ErrorCode::unsupported,
                   "lock needs MADV_POPULATE_READ (Linux 5.14): what is not mapped is not locked");
  lock_ = options.lock;
  drop_behind_ = options.drop_behind;
  one_reader_ = options.one_reader;
  patience_ = options.reader_patience;
  exact_ = !options.slices.empty();
  order_ = options.tensors;
  if (options.follow && order_.empty()) {
    TRY_ASSIGN(const catalog::Catalog* const catalog, state_.placed());
    order_ = in_file_order(state_, *catalog);
  }
  const std::vector<ByteRange> sources = state_.sources.ranges();
  std::vector<ByteRange> ranges;
  for (const ByteRange& source : sources)
    std::ranges::copy(state_.not_random(source), std::back_inserter(ranges));
  if (!order_.empty()) {
    TRY_ASSIGN(ranges, ranges_of(state_, order_));
  } else if (exact_) {
    TRY_ASSIGN(ranges, ranges_of(state_, options.slices));
  }
  choose_budget(options, state_.sources, bytes_of(ranges), state_.lock_share, report_);
  const std::uint64_t most = options.follow ? os::MemoryLimit::unknown : report_.budget_bytes;
  plan_ = plan_warm_up(ranges, sources, {options.step_bytes, most, os::page_bytes(), exact_});
  if (options.follow) window_ = std::make_unique<WarmWindow>(plan_, ranges, report_.budget_bytes);
  return {};
}

void WarmWork::begin(const WarmOptions& options, Progress sums) {
  if (options.verify_crc) {
    verify_ =
        std::make_unique<VerifyBehind>(state_.sources, *summed_, plan_.steps, std::move(sums));
    ++running_;
    verifier_ = std::thread([this] {
      run_guarded([this] { report_.crc = verify_->run(); });
      if (report_.crc.cancelled) cancel();
      thread_ended();
    });
  }
  const unsigned threads =
      options.threads != 0 ? options.threads : threads_for(state_.sources.front().file);
  loading_ = threads;
  running_ += threads;
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i)
    threads_.emplace_back([this] {
      run_guarded([this] { run(); });
      if (--loading_ == 0) loading_ended();
      thread_ended();
    });
}

template <class Function>
void WarmWork::run_guarded(const Function& function) noexcept {
  try {
    function();
  } catch (const std::bad_alloc&) {
    out_of_memory_ = true;
    cancel();
  }
}

// Called by the last filling thread.
void WarmWork::loading_ended() {
  if (election_) {
    election_->resign();
    // Huge pages need none.
    if (!state_.mapping.huge_pages()) state_.allow_readahead(state_.mapping, true);
  }
  if (verify_) verify_->stop();
}

void WarmWork::thread_ended() noexcept {
  if (--running_ == 0) os::wake_all(running_);
}

void WarmWork::fail(Error happened) {
  const std::lock_guard guard(error_mutex_);
  if (!error_) error_ = std::move(happened);
  cancel();
}

void WarmWork::run() {
  std::call_once(begun_, [this] { begin_reading(); });
  const std::size_t at_once = all_cached_ ? cached_steps : 1;
  mmap::PageLoader loader(state_.sources.front().in(state_.mapping), method_);
  while (!cancelled_) {
    state_.gate.give_way(cancelled_);
    const std::size_t first = next_step_.fetch_add(at_once);
    const std::size_t end = std::min(first + at_once, plan_.steps.size());
    if (cancelled_ || first >= end) return;
    if (window_ && !window_->wait_for_turn(first)) continue;
    if (election_ && !wait_for_reader(first)) return;
    for (std::size_t step = first; step < end;) step = bring_in(loader, step, end);
  }
}

void WarmWork::begin_reading() {
  look_at_cache();
  // Readahead marks in the cache make even a fault on a cached page read more.
  if (exact_) state_.allow_readahead(state_.mapping, false);
  if (one_reader_ && !all_cached_) prepare_election();
  if (!election_) read_exactly();
}

// Runs in a thread of its own, since it takes 30 ms if 2 GiB are cached in small pages.
void WarmWork::look_at_cache() {
  if (window_) return;
  all_cached_ =
      std::all_of(state_.sources.begin(), state_.sources.end(), [](const SourceFile& source) {
        const Result<std::uint64_t> cached = mmap::cached_bytes_of(source.file);
        return cached && *cached == source.file.size();
      });
}

// A warmer reads nothing, and so nothing ahead, until it is elected. Nor does its consumer, whose
// faults on cached pages would read on where the elected process has come.
void WarmWork::prepare_election() {
  election_ =
      std::make_unique<WarmElection>(state_.sources, state_.mapping, plan_.steps, patience_);
  state_.allow_readahead(state_.mapping, false);
}

// Disables the system's read-ahead: its pages are not the next ones in the plan, delay demanded
// tensors, and are evicted before use under memory pressure. Huge pages do not need it.
void WarmWork::read_exactly() {
  if (method_ != mmap::LoadMethod::populate || !state_.mapping.huge_pages()) {
    if (election_) state_.allow_readahead(state_.mapping, true);
    return;
  }
  // If everything is cached, readahead marks from earlier readers do not matter.
  reads_exactly_ = all_cached_;
  // Tries several steps, since open() may have read metadata of the first one in small pages.
  int tries = 3;
  for (const ByteRange& step : plan_.steps) {
    if (reads_exactly_ || tries == 0) break;
    if (step.offset % os::large_page != 0 || step.length < os::large_page) continue;
    --tries;
    const SourceFile& source = state_.sources.at(step.offset);
    reads_exactly_ = mmap::reads_large_pages(source.file, step.offset - source.base());
  }
  if ((reads_exactly_ || election_) && !exact_)
    state_.allow_readahead(state_.mapping, !reads_exactly_);
}

// Returns false if it was cancelled meanwhile.
bool WarmWork::wait_for_reader(std::size_t step) {
  const WarmElection::Turn turn = election_->wait_for(step, cancelled_);
  if (turn == WarmElection::Turn::read) std::call_once(elected_, [this] { read_exactly(); });
  return turn != WarmElection::Turn::stop;
}

// Fills one step together with following ones in its file, up to `end`. Returns the next step,
// which is `end` after a failure.
std::size_t WarmWork::bring_in(mmap::PageLoader& loader, std::size_t step, std::size_t end) {
  const SourceFile& source = state_.sources.at(plan_.steps[step].offset);
  const mmap::MappedFile mapped = source.in(state_.mapping);
  const std::uint64_t offset = plan_.steps[step].offset - source.base();
  std::uint64_t length = plan_.steps[step].length;
  std::size_t next = step + 1;
  for (; next < end && plan_.steps[next].offset - source.base() == offset + length &&
         offset + length < source.file.size();
       ++next)
    length += plan_.steps[next].length;
  loader.turn_to(mapped);
  // Whole huge pages are read as such, unless that would read ahead.
  const bool in_large_pages =
      reads_exactly_ && offset % os::large_page == 0 && length % os::large_page == 0;
  Result<void> done =
      exact_ && !in_large_pages ? loader.load_exactly(offset, length) : loader.load(offset, length);
  if (done && lock_) done = mmap::lock_range(mapped, offset, length);
  if (!done) {
    fail(source.about(std::move(done.error())));
    return end;
  }
  const std::uint64_t bytes_done = bytes_done_ += length;
  if (lock_) state_.lock_share.locked(bytes_done);
  for (std::size_t loaded = step; loaded < next; ++loaded) step_done(loaded);
  return next;
}

void WarmWork::step_done(std::size_t step) {
  if (window_ && window_->loaded(step)) leave_behind(step);
  if (verify_) verify_->step_done(step);
}

// The system does not know which pages are no longer needed, and would evict new ones.
void WarmWork::leave_behind(std::size_t step) noexcept {
  const auto [position, length] = plan_.steps[step];
  const SourceFile& source = state_.sources.at(position);
  const mmap::MappedFile mapped = source.in(state_.mapping);
  if (drop_behind_)
    mmap::drop_range(mapped, position - source.base(), length);
  else
    mmap::yield_range(mapped, position - source.base(), length);
}

void WarmWork::pass(std::size_t tensor) {
  if (!window_) return;
  const std::lock_guard guard(order_mutex_);
  const auto ahead = order_.begin() + static_cast<std::ptrdiff_t>(passed_);
  const auto found = std::find(ahead, order_.end(), tensor);
  if (found == order_.end()) return;
  passed_ = static_cast<std::size_t>(found - order_.begin()) + 1;
  for (std::size_t step : window_->pass(passed_)) leave_behind(step);
}

void WarmWork::cancel() noexcept {
  cancelled_ = true;
  state_.gate.wake();
  if (window_) window_->stop();
  if (verify_) verify_->give_up();
}

WarmProgress WarmWork::progress() const noexcept {
  return {bytes_done_, plan_.bytes, running_ == 0};
}

bool WarmWork::wait_for(std::chrono::nanoseconds most) const noexcept {
  const auto end = std::chrono::steady_clock::now() + most;
  for (;;) {
    const std::uint32_t running = running_;
    if (running == 0) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return false;
    os::wait_while(running_, running, end - now);
  }
}

bool WarmWork::is_of_parent() const noexcept { return forks_ != os::fork_count(); }

void WarmWork::give_up(std::unique_ptr<WarmWork> work) noexcept {
  work->state_.allow_readahead(work->state_.mapping, true);
  static_cast<void>(work.release());
}

Result<WarmReport> WarmWork::wait() {
  join();
  if (out_of_memory_)
    return tl::unexpected<Error>(
        {ErrorCode::io, "not enough memory to warm", Error::no_offset, state_.shown_name()});
  if (error_) return tl::unexpected<Error>(*error_);
  return report_;
}

void WarmWork::join() {
  if (std::exchange(joined_, true)) return;
  for (std::thread& thread : threads_) thread.join();
  if (reads_exactly_ || election_ || exact_) state_.allow_readahead(state_.mapping, true);
  if (lock_) state_.lock_share.finish();
  if (verify_) verify_->stop();
  if (verifier_.joinable()) verifier_.join();
  complete_report();
}

void WarmWork::complete_report() {
  report_.exact_reads = reads_exactly_;
  report_.bytes_done = bytes_done_;
  report_.bytes_left_out = plan_.bytes_left_out;
  report_.steps = plan_.steps.size();
  report_.cancelled = cancelled_;
  if (verify_) report_.storages_left_out = verify_->left_out();
  if (election_) {
    WarmElection::Report elected = election_->report();
    report_.was_reader = elected.was_reader;
    report_.takeovers = elected.takeovers;
    report_.bytes_read = elected.bytes_read;
    report_.bytes_waited_for = elected.bytes_waited_for;
    report_.why_alone = std::move(elected.why_alone);
  }
  report_.time = std::chrono::steady_clock::now() - began_;
}

Result<Warmer> Warmer::start(const Checkpoint& checkpoint, const WarmOptions& options) {
  TRY_ASSIGN(std::unique_ptr<WarmWork> work,
             WarmWork::start(Checkpoint::Access::state(checkpoint), options));
  return Warmer(std::move(work));
}

Warmer::Warmer(std::unique_ptr<WarmWork> work) noexcept : work_(std::move(work)) {}
Warmer::Warmer(Warmer&&) noexcept = default;

Warmer& Warmer::operator=(Warmer&& other) noexcept {
  std::swap(work_, other.work_);
  Warmer(std::move(other));  // destroys the old work
  return *this;
}

Warmer::~Warmer() {
  if (work_ && work_->is_of_parent()) WarmWork::give_up(std::move(work_));
}

WarmProgress Warmer::progress() const noexcept {
  WarmProgress progress = work_->progress();
  progress.finished = progress.finished || work_->is_of_parent();
  return progress;
}

void Warmer::passed(std::size_t tensor) {
  if (!work_->is_of_parent()) work_->pass(tensor);
}

void Warmer::cancel() noexcept {
  if (!work_->is_of_parent()) work_->cancel();
}

bool Warmer::wait_for(std::chrono::nanoseconds most) const noexcept {
  return work_->is_of_parent() || work_->wait_for(most);
}

Result<WarmReport> Warmer::wait() {
  if (work_->is_of_parent())
    return failure(ErrorCode::invalid_argument,
                   "the warmer was started before this process was forked: its threads are the "
                   "parent's, so start another");
  return work_->wait();
}

}  // namespace weightmap
