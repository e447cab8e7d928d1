#include "weightmap/warmer.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "mmap/fill.hpp"
#include "mmap/memory_limit.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_behind.hpp"
#include "runtime/checkpoint/warm_plan.hpp"

namespace weightmap {
namespace {

constexpr unsigned max_threads = 64;

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
    case WarmMethod::read:
      return os::FillMethod::read;
    case WarmMethod::readahead:
      return os::FillMethod::readahead;
    case WarmMethod::willneed:
      return os::FillMethod::willneed;
    default:
      return os::FillMethod::populate;
  }
}

// A small range is read alone, since a large page would cost more than it brings, and then mapped.
Result<void> fill_step(os::Filler& filler, const ByteRange& range) {
  if (range.length < small_range)
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

// Fills in what was left to be chosen: the method, and why.
Result<void> choose_method(const os::Mapping& mapping, WarmMethod wanted, WarmReport& report) {
  const bool can_populate = os::knows_method(mapping, os::FillMethod::populate);
  if (wanted == WarmMethod::populate && !can_populate)
    return failure(ErrorCode::unsupported,
                   "this kernel does not know MADV_POPULATE_READ (Linux 5.14)");
  report.method = wanted;
  if (wanted != WarmMethod::automatic) return {};
  report.method = can_populate ? WarmMethod::populate : WarmMethod::read;
  if (!can_populate) report.method_reason = "this kernel does not know MADV_POPULATE_READ";
  return {};
}

// A part of the free memory is left alone: page tables, and those who allocate meanwhile.
void choose_budget(std::uint64_t wanted, WarmReport& report) {
  report.budget_bytes = wanted;
  if (wanted != 0) return;
  const os::MemoryLimit limit = os::memory_limit();
  report.budget_bytes = limit.available == os::MemoryLimit::unknown
                            ? limit.available
                            : limit.available - limit.available / 16;
  report.budget_reason = limit.reason;
}

Result<std::vector<ByteRange>> ranges_of(const Checkpoint::Access::State& state,
                                         const std::vector<std::size_t>& tensors) {
  if (tensors.empty()) return std::vector<ByteRange>{{0, state.file.size()}};
  std::vector<ByteRange> ranges;
  ranges.reserve(tensors.size());
  for (std::size_t index : tensors) {
    if (index >= state.catalog.size())
      return failure(ErrorCode::invalid_argument, "there is no tensor " + std::to_string(index) +
                                                      " of " +
                                                      std::to_string(state.catalog.size()));
    ranges.push_back({state.catalog[index].file_offset, state.catalog[index].extent});
  }
  return ranges;
}

}  // namespace

struct Warmer::Work {
  Checkpoint::Access::State& state;
  WarmPlan plan;
  WarmReport report;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next_step{0};
  std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> waits{0};
  std::atomic<unsigned> running{0};
  std::atomic<bool> cancelled{false};
  std::mutex error_mutex;
  std::optional<Error> error;  // the first; under the mutex
  std::vector<std::thread> threads;
  std::unique_ptr<VerifyBehind> verify;
  std::thread verifier;

  explicit Work(Checkpoint::Access::State& of) : state(of) {}
  ~Work() {
    cancelled = true;
    join();
  }

  void begin(unsigned count, bool verify_crc) {
    if (verify_crc) {
      verify = std::make_unique<VerifyBehind>(state.file, state.catalog, plan);
      verifier = std::thread([this] { guarded([this] { report.crc = verify->run(); }); });
    }
    running = count;
    threads.reserve(count);
    for (unsigned i = 0; i < count; ++i)
      threads.emplace_back([this] {
        guarded([this] { run(); });
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

  void run() {
    os::Filler filler(state.file, state.mapping, fill_method(report.method));
    while (!cancelled) {
      give_way();
      const std::size_t step = next_step++;
      if (cancelled || step >= plan.steps.size()) return;
      const ByteRange& range = plan.steps[step];
      const Result<void> filled = fill_step(filler, range);
      if (!filled) return fail(filled.error());
      bytes_done += range.length;
      if (verify) verify->step_done(step);
    }
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
    happened.file = state.file_name;
    const std::lock_guard lock(error_mutex);
    if (!error) error = std::move(happened);
    cancelled = true;
  }

  void join() {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    if (!verifier.joinable()) return;
    verify->stop();
    verifier.join();
    report.storages_left_out = verify->left_out();
    for (Error& fault : report.crc.faults) fault.file = state.file_name;
  }
};

Result<Warmer> Warmer::start(const Checkpoint& checkpoint, const WarmOptions& options) {
  if (options.threads == 0 || options.threads > max_threads)
    return failure(ErrorCode::invalid_argument, "warming takes 1 to " +
                                                    std::to_string(max_threads) + " threads, not " +
                                                    std::to_string(options.threads));
  if (options.step_bytes < large_page)
    return failure(ErrorCode::invalid_argument, "a step has at least 2 MiB, not " +
                                                    std::to_string(options.step_bytes) + " bytes");
  auto work = std::make_unique<Work>(Checkpoint::Access::state(checkpoint));
  if (Result<void> ok = choose_method(work->state.mapping, options.method, work->report); !ok)
    return tl::unexpected<Error>(ok.error());
  const Result<std::vector<ByteRange>> ranges = ranges_of(work->state, options.tensors);
  if (!ranges) return tl::unexpected<Error>(ranges.error());
  choose_budget(options.budget_bytes, work->report);
  work->plan = plan_warm_up(*ranges, work->state.file.size(),
                            {options.step_bytes, work->report.budget_bytes});
  try {
    work->begin(options.threads, options.verify_crc);
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

void Warmer::cancel() noexcept { work_->cancelled = true; }

Result<WarmReport> Warmer::wait() {
  work_->join();
  if (work_->error) return tl::unexpected<Error>(std::move(*work_->error));
  WarmReport report = std::move(work_->report);
  report.bytes_done = work_->bytes_done;
  report.bytes_left_out = work_->plan.bytes_left_out;
  report.steps = work_->plan.steps.size();
  report.waits_for_demands = work_->waits;
  report.cancelled = work_->cancelled;
  report.time = std::chrono::steady_clock::now() - work_->began;
  return report;
}

Result<void> Checkpoint::demand(const TensorView& view) const {
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const auto start = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(state_->mapping.bytes().data());
  if (start < base || !bytes::contains(state_->mapping.bytes().size(), start - base, part.size()))
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  const DemandMark mark(state_->demands);
  WarmReport chosen;
  if (Result<void> ok = choose_method(state_->mapping, WarmMethod::automatic, chosen); !ok)
    return ok;
  os::Filler filler(state_->file, state_->mapping, fill_method(chosen.method));
  Result<void> filled = fill_now(filler, {start - base, part.size()}, state_->file.size());
  if (!filled) filled.error().file = state_->file_name;
  return filled;
}

std::string_view to_string(WarmMethod method) noexcept {
  switch (method) {
    case WarmMethod::automatic:
      return "automatic";
    case WarmMethod::populate:
      return "populate";
    case WarmMethod::fault:
      return "fault";
    case WarmMethod::read:
      return "read";
    case WarmMethod::readahead:
      return "readahead";
    case WarmMethod::willneed:
      return "willneed";
  }
  return "unknown";
}

}  // namespace weightmap
