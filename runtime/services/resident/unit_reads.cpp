#include "runtime/services/resident/unit_reads.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include "mmap/memory/copy_file.hpp"
#include "mmap/memory/slot_memory.hpp"
#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {

// What each thread has for itself: memory for pages of which a part is wanted, and small enough to
// stay in the processor's cache until it is copied. A huge page: a disk reads into small ones at
// half the rate, each being an address of its own for it.
struct UnitReads::Scratch {
  Result<mmap::SlotMemory> memory = mmap::SlotMemory::of_process(os::large_page);
};

UnitReads::UnitReads(const Checkpoint::State& checkpoint, Finished finished, More more)
    : checkpoint_(checkpoint), finished_(std::move(finished)), more_(std::move(more)) {}

Result<void> UnitReads::start(std::span<const PlacedUnit> units) {
  unsigned threads = mmap::local_reads;
  for (const PlacedUnit& unit : units)
    for (const PlacedPart& part : unit.parts) {
      const SourceFile& source = checkpoint_.sources.at(part.position);
      std::unique_ptr<os::DirectReader>& reader = readers_[&source];
      if (reader) continue;
      reader = std::make_unique<os::DirectReader>(source.file);
      threads = std::max(threads, mmap::reads_at_a_time(source.file));
    }
  try {
    while (threads_.size() < threads) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    stop();
    return tl::unexpected<Error>(os::os_error("start a thread that reads", error.code().value()));
  }
  return {};
}

void UnitReads::stop() noexcept {
  std::list<Task> left;
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    left.splice(left.end(), wanted_);
    left.splice(left.end(), ahead_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  cancel(left, "the set ends");
}

void UnitReads::cancel(const std::list<Task>& tasks, const char* why) {
  for (const Task& task : tasks) {
    {
      const std::scoped_lock lock(task.read->mutex);
      task.read->error = Error{ErrorCode::cancelled, why};
    }
    end_part(*task.read);
  }
}

std::list<UnitReads::Task> UnitReads::tasks_of(const std::shared_ptr<UnitRead>& read) {
  std::list<Task> tasks;
  for (std::size_t part = 0; part < read->parts.size(); ++part) tasks.push_back({read, part});
  read->left = read->parts.size();
  return tasks;
}

void UnitReads::add(const std::shared_ptr<UnitRead>& read) {
  std::list<Task> tasks = tasks_of(read);
  {
    const std::scoped_lock lock(mutex_);
    wanted_.splice(wanted_.end(), tasks);
  }
  changed_.notify_all();
}

// Those of which `is_one` holds. Precondition: the mutex is held.
template <class IsOne>
void UnitReads::move_ahead(std::list<Task>& to, const IsOne& is_one) {
  for (auto task = ahead_.begin(); task != ahead_.end();) {
    const auto next = std::next(task);
    if (is_one(*task->read)) to.splice(to.end(), ahead_, task);
    task = next;
  }
}

void UnitReads::want(std::span<const std::uint32_t> units) noexcept {
  const std::scoped_lock lock(mutex_);
  move_ahead(wanted_,
             [&](const UnitRead& read) { return std::ranges::binary_search(units, read.unit); });
}

bool UnitReads::give_up(const std::function<bool(std::uint32_t)>& may_go) {
  std::list<Task> given_up;
  {
    const std::scoped_lock lock(mutex_);
    move_ahead(given_up,
               [&](const UnitRead& read) { return read.slot != nullptr && may_go(read.unit); });
  }
  cancel(given_up, "given up");
  return !given_up.empty();
}

void UnitReads::look_for_more() {
  {
    const std::scoped_lock lock(mutex_);
    may_have_more_ = true;
  }
  changed_.notify_all();
}

std::string UnitReads::why_not_direct() const {
  for (const auto& [source, reader] : readers_)
    if (std::string why = reader->why_not_direct(); !why.empty()) return why;
  return {};
}

void UnitReads::run() noexcept {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] {
      return is_stopped_ || !wanted_.empty() || !ahead_.empty() || may_have_more_;
    });
    if (is_stopped_) return;
    Task task;
    if (!take(lock, task)) continue;
    lock.unlock();
    work_on(task, scratch);
    task = {};
    lock.lock();
  }
}

bool UnitReads::take(std::unique_lock<std::mutex>& lock, Task& task) {
  std::list<Task>& tasks = wanted_.empty() ? ahead_ : wanted_;
  if (!tasks.empty()) {
    task = std::move(tasks.front());
    tasks.pop_front();
    return true;
  }
  may_have_more_ = false;
  lock.unlock();
  std::list<Task> more = find_more();
  lock.lock();
  if (more.empty()) return false;
  may_have_more_ = true;
  ahead_.splice(ahead_.end(), more);
  changed_.notify_all();
  return false;
}

// Without memory, what was to be read ahead is not.
std::list<UnitReads::Task> UnitReads::find_more() noexcept {
  std::shared_ptr<UnitRead> read;
  try {
    read = more_();
    if (read) return tasks_of(read);
  } catch (const std::bad_alloc&) {
    if (read) {
      read->error = Error{ErrorCode::io, "no memory"};
      read->left = 1;
      end_part(*read);
    }
  }
  return {};
}

void UnitReads::work_on(const Task& task, Scratch& scratch) {
  UnitRead& read = *task.read;
  const SlotRead& part = read.parts[task.part];
  if (!read.has_failed())
    if (Result<void> done = read_guarded(read, part, scratch); !done) {
      const std::scoped_lock lock(read.mutex);
      read.error = std::move(done.error());
    }
  end_part(read);
}

Result<void> UnitReads::read_guarded(UnitRead& read, const SlotRead& part,
                                     Scratch& scratch) noexcept {
  try {
    Result<void> done = read_part(read, part, scratch);
    if (done) return done;
    return tl::unexpected<Error>(part.source->about(std::move(done.error())));
  } catch (const std::bad_alloc&) {
    return tl::unexpected<Error>(Error{ErrorCode::io, "no memory"});  // too short to need some
  }
}

Result<void> UnitReads::read_part(UnitRead& read, const SlotRead& part, Scratch& scratch) {
  if (!scratch.memory) return failure(ErrorCode::io, "there is no memory for a thread that reads");
  const mmap::MappedFile mapped = part.source->in(checkpoint_.mapping);
  TRY(mapped.check_not_lost());
  if (read.slot != nullptr) return read_into_slot(read, part, scratch);
  mmap::PageLoader loader(mapped, mmap::best_load_method(checkpoint_.mapping));
  read.read_bytes += part.bytes;
  // In large pages, which are used as fast as memory is.
  return loader.load_now(part.pages.offset + part.skipped, part.bytes);
}

Result<void> UnitReads::read_into_slot(UnitRead& read, const SlotRead& part, Scratch& scratch) {
  const os::File& file = part.source->file;
  std::byte* const to = read.slot + part.in_slot;
  const std::uint64_t offset = part.pages.offset + part.skipped;
  // Asked first, since a read that does not wait (RWF_NOWAIT) begins to read ahead all the same.
  if (file.is_in_memory() ||
      mmap::is_surely_cached(part.source->in(checkpoint_.mapping), offset, part.bytes))
    return file.read(offset, {to, part.bytes});
  read.read_bytes += part.pages.length;
  os::DirectReader& reader = *readers_.at(part.source);
  const std::span<std::byte> pages = part.is_congruent
                                         ? std::span(to - part.skipped, part.pages.length)
                                         : scratch.memory->bytes().first(part.pages.length);
  TRY_ASSIGN(const bool is_past_cache, reader.read(part.pages.offset, pages));
  if (!is_past_cache)
    mmap::drop_range(part.source->in(checkpoint_.mapping), part.pages.offset,
                     std::min(part.pages.length, file.size() - part.pages.offset));
  if (!part.is_congruent) std::memcpy(to, pages.data() + part.skipped, part.bytes);
  return {};
}

// What was written to meanwhile would be other bytes.
Result<void> UnitReads::check_files(const UnitRead& read) const {
  std::set<const SourceFile*> files;
  for (const SlotRead& part : read.parts) files.insert(part.source);
  for (const SourceFile* source : files)
    if (Result<void> same = source->file.check_unchanged(); !same)
      return tl::unexpected<Error>(source->about(std::move(same.error())));
  return {};
}

void UnitReads::end_part(UnitRead& read) {
  if (--read.left != 0) return;
  if (!read.has_failed())
    if (Result<void> same = check_files(read); !same) {
      const std::scoped_lock lock(read.mutex);
      read.error = std::move(same.error());
    }
  read.is_done = true;
  finished_(read);
}

}  // namespace weightmap
