#include "weightmap/warmer.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "mmap/direct_reader.hpp"
#include "mmap/fill.hpp"
#include "mmap/memory/memory_limit.hpp"
#include "mmap/memory/private_pages.hpp"
#include "mmap/pages/large_reads.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/ranges.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"
#include "runtime/warm/verify_behind.hpp"
#include "runtime/warm/warm_election.hpp"
#include "runtime/warm/warm_plan.hpp"
#include "runtime/warm/warm_window.hpp"

namespace weightmap {
namespace {

constexpr unsigned max_threads = 64;
// How many steps are mapped at once where nothing waits for the disk: fewer system calls map a
// cached file sooner. More would keep a processor from the consumer for long where the cache holds
// small pages.
constexpr std::size_t cached_steps = 4;

// While one lives, warmers wait at the next step.
class DemandMark {
 public:
  explicit DemandMark(std::atomic<std::uint32_t>& demands) noexcept : demands_(demands) {
    ++demands_;
  }
  ~DemandMark() {
    --demands_;
    demands_.notify_all();
  }
  DemandMark(const DemandMark&) = delete;
  DemandMark& operator=(const DemandMark&) = delete;

 private:
  std::atomic<std::uint32_t>& demands_;
};

os::FillMethod fill_method(WarmMethod method) noexcept {
  switch (method) {
    case WarmMethod::fault:
      return os::FillMethod::fault;
    case WarmMethod::sequential:
      return os::FillMethod::sequential;
    case WarmMethod::read:
      return os::FillMethod::read;
    case WarmMethod::readahead:
      return os::FillMethod::readahead;
    case WarmMethod::willneed:
      return os::FillMethod::willneed;
    case WarmMethod::direct:
      return os::FillMethod::direct;
    default:
      return os::FillMethod::populate;
  }
}

// A small range is read alone, since a large page would cost more than it brings, and then mapped.
Result<void> fill_step(os::Filler& filler, const ByteRange& range) {
  if (range.length < small_range && filler.uses_page_cache())
    if (Result<void> ok = filler.fill_exactly(range.offset, range.length); !ok) return ok;
  return filler.fill(range.offset, range.length);
}

// All of a range, at once.
Result<void> fill_now(os::Filler& filler, const ByteRange& range, std::uint64_t file_bytes) {
  if (range.length < small_range) return fill_step(filler, range);
  const std::uint64_t start = range.offset / large_page * large_page;
  const std::uint64_t end = std::min(
      file_bytes, (range.offset + range.length + large_page - 1) / large_page * large_page);
  return filler.fill_alone(start, end - start);
}

Result<void> check_direct(const os::Mapping& mapping, WarmReport& report) {
  if (const std::string why = os::why_no_io_uring(); !why.empty())
    report.method_reason = "read by pread, since the system refuses io_uring: " + why;
  return os::check_replaceable(mapping);
}

// Fills in what was left to be chosen: the method, and why.
Result<void> choose_method(const os::Mapping& mapping, WarmMethod wanted, WarmReport& report) {
  const bool can_populate = os::knows_method(mapping, os::FillMethod::populate);
  if (wanted == WarmMethod::populate && !can_populate)
    return failure(ErrorCode::unsupported,
                   "this kernel does not know MADV_POPULATE_READ (Linux 5.14)");
  report.method = wanted;
  if (wanted == WarmMethod::direct) return check_direct(mapping, report);
  if (wanted != WarmMethod::automatic) return {};
  report.method = can_populate ? WarmMethod::populate : WarmMethod::read;
  if (!can_populate) report.method_reason = "this kernel does not know MADV_POPULATE_READ";
  return {};
}

// `locked`: what is in memory already and in no count of free memory.
void choose_budget(std::uint64_t wanted, std::uint64_t locked, WarmReport& report) {
  report.budget_bytes = wanted;
  if (wanted != 0) return;
  const os::MemoryLimit limit = os::memory_limit();
  report.budget_bytes = limit.usable();
  if (report.budget_bytes != os::MemoryLimit::unknown) report.budget_bytes += locked;
  report.budget_reason = limit.reason;
}

bool maps_pages(WarmMethod method) noexcept {
  return method == WarmMethod::populate || method == WarmMethod::fault ||
         method == WarmMethod::sequential || method == WarmMethod::direct;
}

// What excludes what.
Result<void> check_options(const Checkpoint::State& state, const WarmOptions& options) {
  if (options.threads == 0 || options.threads > max_threads)
    return failure(ErrorCode::invalid_argument, "warming takes 1 to " +
                                                    std::to_string(max_threads) + " threads, not " +
                                                    std::to_string(options.threads));
  if (options.step_bytes < large_page)
    return failure(ErrorCode::invalid_argument, "a step has at least 2 MiB, not " +
                                                    std::to_string(options.step_bytes) + " bytes");
  if (options.verify_crc && options.method == WarmMethod::direct)
    return failure(ErrorCode::invalid_argument,
                   "checksums are compared with what is in the page cache, which direct reads go "
                   "past: warm by another method");
  if (options.lock && options.follow)
    return failure(ErrorCode::invalid_argument, "what is locked cannot follow the consumer");
  if (options.one_reader && options.follow)
    return failure(ErrorCode::invalid_argument,
                   "one reader for many cannot follow the consumer of one of them");
  if (options.one_reader && options.method == WarmMethod::direct)
    return failure(ErrorCode::invalid_argument,
                   "direct reads leave nothing in the page cache that others could wait for: "
                   "one_reader needs another method");
  if (!options.drop_behind) return {};
  if (!options.follow) return failure(ErrorCode::invalid_argument, "drop_behind needs follow");
  if (options.method == WarmMethod::direct)
    return failure(ErrorCode::invalid_argument,
                   "private pages, which direct reads fill, cannot be dropped and read again");
  if (options.verify_crc)
    return failure(ErrorCode::invalid_argument,
                   "drop_behind could drop what verify_crc has not summed yet");
  if (state.info.writable && state.info.sharing == Sharing::private_)
    return failure(ErrorCode::invalid_argument,
                   "drop_behind would lose what was written to private memory");
  return {};
}

// The whole file, or every tensor of it, in its order.
std::vector<std::size_t> in_file_order(const catalog::Catalog& catalog) {
  std::vector<std::size_t> tensors(catalog.size());
  std::iota(tensors.begin(), tensors.end(), std::size_t{0});
  std::stable_sort(tensors.begin(), tensors.end(), [&catalog](std::size_t a, std::size_t b) {
    return catalog[a].file_offset < catalog[b].file_offset;
  });
  return tensors;
}

Result<std::vector<ByteRange>> ranges_of(const catalog::Catalog& catalog,
                                         const std::vector<std::size_t>& tensors) {
  std::vector<ByteRange> ranges;
  ranges.reserve(tensors.size());
  for (std::size_t index : tensors) {
    if (index >= catalog.size())
      return failure(ErrorCode::invalid_argument, "there is no tensor " + std::to_string(index) +
                                                      " of " + std::to_string(catalog.size()));
    ranges.push_back({catalog[index].file_offset, catalog[index].extent});
  }
  return ranges;
}

}  // namespace

struct Warmer::Work {
  Checkpoint::State& state;
  const catalog::Catalog* catalog = nullptr;  // where tensors or storages are asked for
  WarmPlan plan;
  WarmReport report;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next_step{0};
  std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> waits{0};
  std::atomic<unsigned> at_work{0};  // threads that may still read
  std::atomic<unsigned> running{0};
  std::atomic<bool> cancelled{false};
  std::mutex error_mutex;
  std::optional<Error> error;  // the first; under the mutex
  std::vector<std::thread> threads;
  std::once_flag begun;
  std::once_flag elected;
  bool all_cached = false;     // when it began
  bool reads_exactly = false;  // the mapping's readahead is off
  std::unique_ptr<VerifyBehind> verify;
  std::thread verifier;
  bool lock = false;
  // With WarmOptions::follow: the order, how many of it the consumer has passed, and the window.
  std::vector<std::size_t> order;
  std::mutex order_mutex;
  std::size_t passed = 0;  // under the mutex
  bool drop_behind = false;
  std::atomic<std::uint64_t> bytes_skipped{0};
  std::unique_ptr<WarmWindow> window;
  bool one_reader = false;
  std::unique_ptr<WarmElection> election;  // with `one_reader`, unless all was cached

  explicit Work(Checkpoint::State& of) : state(of) {}
  ~Work() {
    cancel();
    join();
  }

  // Plans what `options` ask for, with the budget of the report.
  Result<void> prepare(const WarmOptions& options) {
    lock = options.lock;
    drop_behind = options.drop_behind;
    one_reader = options.one_reader;
    order = options.tensors;
    if (options.follow || options.verify_crc || !order.empty()) {
      const Result<const catalog::Catalog*> whole = state.catalogs.whole();
      if (!whole) return tl::unexpected<Error>(whole.error());
      catalog = *whole;
    }
    if (options.follow && order.empty()) order = in_file_order(*catalog);
    const Result<std::vector<ByteRange>> ranges =
        order.empty() ? std::vector<ByteRange>{{0, state.file.size()}} : ranges_of(*catalog, order);
    if (!ranges) return tl::unexpected<Error>(ranges.error());
    const std::uint64_t most = options.follow ? os::MemoryLimit::unknown : report.budget_bytes;
    plan = plan_warm_up(*ranges, state.file.size(), {options.step_bytes, most});
    if (!options.follow) return {};
    window = std::make_unique<WarmWindow>(plan, *ranges, report.budget_bytes);
    return {};
  }

  // Until it is elected it reads nothing, so nothing ahead either.
  void prepare_election() {
    election = std::make_unique<WarmElection>(state.file, state.mapping);
    if (report.method == WarmMethod::populate && state.mapping.huge_pages())
      os::allow_readahead(state.mapping, false);
  }

  void cancel() noexcept {
    cancelled = true;
    if (window) window->stop();
    if (verify) verify->give_up();
  }

  void begin_sums(SumProgress progress) {
    verify = std::make_unique<VerifyBehind>(state.file, *catalog, plan, std::move(progress));
    ++running;
    verifier = std::thread([this] {
      guarded([this] { report.crc = verify->run(); });
      --running;
    });
  }

  void begin(unsigned count) {
    at_work = count;
    running += count;
    threads.reserve(count);
    for (unsigned i = 0; i < count; ++i)
      threads.emplace_back([this] {
        guarded([this] { run(); });
        if (--at_work == 0 && election) election->resign();
        --running;
      });
  }

  // An exception that left a thread would end the process.
  template <class Function>
  void guarded(Function function) {
    try {
      function();
    } catch (const std::bad_alloc&) {
      fail({ErrorCode::io, "not enough memory to warm", Error::no_offset, {}});
    }
  }

  // Asked by a thread of the warmer, since it takes 30 ms where 2 GiB are cached in small pieces.
  void look_at_cache() {
    if (window) return;
    const Result<std::uint64_t> cached = os::cached_bytes_of(state.file);
    all_cached = cached && *cached == state.file.size();
  }

  // What the system would read ahead is not what comes next, keeps a demanded tensor waiting, and
  // is thrown out before it is needed where memory is short. Large pages do without it.
  void read_exactly() {
    if (report.method != WarmMethod::populate) return;
    // Where nothing will be read, not even marks left by whoever read ahead before need be heeded.
    reads_exactly = all_cached && state.mapping.huge_pages();
    // Not the first alone: it may lie where open() has read metadata, in small pieces.
    int tries = 3;
    for (const ByteRange& step : plan.steps) {
      if (reads_exactly || tries == 0) break;
      if (step.offset % large_page != 0 || step.length < large_page) continue;
      --tries;
      reads_exactly = os::reads_large_pages(state.mapping, step.offset);
    }
    if (reads_exactly || election) os::allow_readahead(state.mapping, !reads_exactly);
  }

  void run() {
    std::call_once(begun, [this] {
      look_at_cache();
      if (one_reader && !all_cached) prepare_election();
      if (!election) read_exactly();
    });
    const std::size_t at_once = all_cached ? cached_steps : 1;
    os::Filler filler(state.file, state.mapping, fill_method(report.method));
    while (!cancelled) {
      give_way();
      const std::size_t first = next_step.fetch_add(at_once);
      const std::size_t end = std::min(first + at_once, plan.steps.size());
      if (cancelled || first >= end) return;
      if (window && !wait_for_turn(first)) continue;
      if (election && !wait_for_reader(plan.steps[first])) return;
      for (std::size_t step = first; step < end;) step = bring_in(filler, step, end);
    }
  }

  // false: the step need not be brought in, or nothing more is.
  bool wait_for_turn(std::size_t step) {
    const WarmWindow::Turn turn = window->wait_for_turn(step);
    if (turn == WarmWindow::Turn::skip) bytes_skipped += plan.steps[step].length;
    return turn == WarmWindow::Turn::fill;
  }

  // false: it was cancelled meanwhile.
  bool wait_for_reader(const ByteRange& range) {
    const WarmElection::Turn turn = election->wait_for(range, cancelled);
    if (turn == WarmElection::Turn::read) std::call_once(elected, [this] { read_exactly(); });
    return turn != WarmElection::Turn::stop;
  }

  // Brings in one step, and with it those behind it that follow it in the file, but not `end`.
  // Answers where to go on, which is `end` after a failure.
  std::size_t bring_in(os::Filler& filler, std::size_t step, std::size_t end) {
    ByteRange range = plan.steps[step];
    std::size_t next = step + 1;
    for (; next < end && plan.steps[next].offset == range.offset + range.length; ++next)
      range.length += plan.steps[next].length;
    Result<void> done = fill_step(filler, range);
    if (done && lock) done = os::lock_range(state.mapping, range.offset, range.length);
    if (!done) {
      fail(done.error());
      return end;
    }
    bytes_done += range.length;
    for (std::size_t filled = step; filled < next; ++filled) step_done(filled);
    return next;
  }

  void step_done(std::size_t step) {
    if (window && window->filled(step)) leave_behind(step);
    if (verify) verify->step_done(step);
  }

  // The system cannot know which pages are needed no more, and would take those that are new.
  void leave_behind(std::size_t step) noexcept {
    const auto [offset, length] = plan.steps[step];
    if (drop_behind)
      os::drop_range(state.file, state.mapping, offset, length);
    else
      os::yield_range(state.mapping, offset, length);
  }

  void pass(std::size_t tensor) {
    if (!window) return;
    const std::lock_guard guard(order_mutex);
    const auto ahead = order.begin() + static_cast<std::ptrdiff_t>(passed);
    const auto found = std::find(ahead, order.end(), tensor);
    if (found == order.end()) return;
    passed = static_cast<std::size_t>(found - order.begin()) + 1;
    for (std::size_t step : window->pass(passed)) leave_behind(step);
  }

  // Lets those who wait for a tensor have the disk to themselves.
  void give_way() {
    std::uint32_t waiting = state.demands;
    if (waiting != 0) ++waits;
    while (waiting != 0) {
      state.demands.wait(waiting);
      waiting = state.demands;
    }
  }

  void fail(Error happened) {
    happened.file = state.shown_name;
    const std::lock_guard guard(error_mutex);
    if (!error) error = std::move(happened);
    cancel();
  }

  // After the last thread that fills.
  void settle() noexcept {
    if (reads_exactly || election) os::allow_readahead(state.mapping, true);
    if (lock && order.empty() && bytes_done > state.locked_bytes)
      state.locked_bytes = bytes_done.load();
  }

  void join() {
    for (std::thread& thread : threads) thread.join();
    if (!threads.empty()) settle();
    threads.clear();
    if (!verifier.joinable()) return;
    verify->stop();
    verifier.join();
    report.storages_left_out = verify->left_out();
    for (Error& fault : report.crc.faults) fault.file = state.shown_name;
  }
};

Result<Warmer> Warmer::start(const Checkpoint& checkpoint, const WarmOptions& options) {
  return start(checkpoint, options, {});
}

Result<Warmer> Warmer::start(const Checkpoint& checkpoint, const WarmOptions& options,
                             SumProgress progress) {
  auto work = std::make_unique<Work>(Checkpoint::Access::state(checkpoint));
  if (Result<void> ok = check_options(work->state, options); !ok)
    return tl::unexpected<Error>(ok.error());
  if (Result<void> ok = choose_method(work->state.mapping, options.method, work->report); !ok)
    return tl::unexpected<Error>(ok.error());
  if (options.lock && !maps_pages(work->report.method))
    return failure(ErrorCode::invalid_argument,
                   "the method " + std::string(to_string(work->report.method)) +
                       " maps no pages, and only those that are mapped can be locked");
  choose_budget(options.budget_bytes, options.lock ? work->state.locked_bytes.load() : 0,
                work->report);
  if (Result<void> ok = work->prepare(options); !ok) return tl::unexpected<Error>(ok.error());
  try {
    if (options.verify_crc) work->begin_sums(std::move(progress));
    work->begin(options.threads);
  } catch (const std::system_error& refusal) {  // the limit on threads; those begun end here
    return failure(ErrorCode::io, std::string("cannot begin a thread: ") + refusal.what());
  }
  return Warmer(std::move(work));
}

Warmer::Warmer(std::unique_ptr<Work> work) noexcept : work_(std::move(work)) {}
Warmer::Warmer(Warmer&&) noexcept = default;
Warmer& Warmer::operator=(Warmer&&) noexcept = default;
Warmer::~Warmer() = default;

WarmProgress Warmer::progress() const noexcept {
  return {work_->bytes_done, work_->plan.bytes, work_->running == 0};
}

void Warmer::passed(std::size_t tensor) { work_->pass(tensor); }

void Warmer::cancel() noexcept { work_->cancel(); }

Result<WarmReport> Warmer::wait() {
  work_->join();
  if (work_->error) return tl::unexpected<Error>(std::move(*work_->error));
  WarmReport report = std::move(work_->report);
  report.exact_reads = work_->reads_exactly;
  report.bytes_done = work_->bytes_done;
  report.bytes_left_out = work_->plan.bytes_left_out;
  report.bytes_skipped = work_->bytes_skipped;
  report.steps = work_->plan.steps.size();
  report.waits_for_demands = work_->waits;
  report.cancelled = work_->cancelled;
  if (work_->election) {
    WarmElection::Report elected = work_->election->report();
    report.was_reader = elected.was_reader;
    report.takeovers = elected.takeovers;
    report.bytes_waited_for = elected.bytes_waited_for;
    report.why_alone = std::move(elected.why_alone);
  }
  report.time = std::chrono::steady_clock::now() - work_->began;
  return report;
}

Result<void> Checkpoint::demand(const TensorView& view) const {
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const std::optional<std::uint64_t> offset = state_->position_of(part);
  if (!offset)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  state_->demand_log.note(*offset);
  const DemandMark mark(state_->demands);
  WarmReport chosen;
  if (Result<void> ok = choose_method(state_->mapping, WarmMethod::automatic, chosen); !ok)
    return ok;
  os::Filler filler(state_->file, state_->mapping, fill_method(chosen.method));
  Result<void> filled = fill_now(filler, {*offset, part.size()}, state_->file.size());
  if (!filled) filled.error().file = state_->shown_name;
  return filled;
}

CrcReport Checkpoint::verify_crc(
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  WarmOptions options;
  options.verify_crc = true;
  options.budget_bytes = os::MemoryLimit::unknown;  // each page is needed once: it may go again
  Result<Warmer> warmer = Warmer::start(*this, options, progress);
  if (warmer) {
    Result<WarmReport> report = warmer->wait();
    if (report && report->storages_left_out == 0) return std::move(report->crc);
  }
  // Without threads, or past what could not be read, to say of each storage what is wrong with it.
  const Result<const catalog::Catalog*> catalog = state_->catalogs.whole();
  CrcReport report;
  if (catalog)
    report = verify_storage_crcs(state_->file, **catalog, progress);
  else
    report.faults.push_back(catalog.error());
  for (Error& fault : report.faults) fault.file = state_->shown_name;
  return report;
}

std::string_view to_string(WarmMethod method) noexcept {
  switch (method) {
    case WarmMethod::automatic:
      return "automatic";
    case WarmMethod::populate:
      return "populate";
    case WarmMethod::fault:
      return "fault";
    case WarmMethod::sequential:
      return "sequential";
    case WarmMethod::read:
      return "read";
    case WarmMethod::readahead:
      return "readahead";
    case WarmMethod::willneed:
      return "willneed";
    case WarmMethod::direct:
      return "direct";
  }
  return "unknown";
}

}  // namespace weightmap
