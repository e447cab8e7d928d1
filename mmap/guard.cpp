#include "mmap/guard.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "mmap/closed_range.hpp"
#include "mmap/fault_handler.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::uint32_t live = std::uint32_t{1} << 31;
constexpr std::uint32_t claimed = std::uint32_t{1} << 30;
constexpr std::uint64_t nothing = ~std::uint64_t{0};

// The number of losses so far, and the number that this thread has seen. A signal without an
// address may stem from a loss that another thread has repaired meanwhile; the first such signal
// after each loss is attributed to it. Initial exec, since another kind of thread-local variable
// could be allocated at its first use, inside a signal handler.
constinit std::atomic<std::uint32_t> losses{0};
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t known_losses = 0;

// Called before the question whether bytes were lost, by the thread that has read them: a processor
// may do the later load first, unless it is an x86, and zeros would pass as the file's bytes.
void finish_reads() noexcept { std::atomic_thread_fence(std::memory_order_acquire); }

}  // namespace

// The handler's calls are async-signal-safe: lock-free atomics, write(), fstat() and mmap(), which
// is a plain system call although POSIX does not list it.

// A file of a guarded mapping.
struct Guard::Part {
  std::uint64_t base = 0;    // in the mapping
  std::uint64_t length = 0;  // whole pages
  int descriptor = -1;
  int loss_event = -1;
  std::uint64_t file_bytes = 0;
  std::atomic<std::uint64_t> lost_at{nothing};
  std::atomic<bool> is_zeros{false};

  // Marks the file as lost before the zeros become visible. All of it is replaced, since otherwise
  // each of its pages could cost one more fault and one more mapping.
  bool lose(std::uint64_t offset, std::uintptr_t mapping, bool writable) noexcept {
    std::uint64_t none = nothing;
    if (lost_at.compare_exchange_strong(none, offset)) tell();
    // Called by number: ThreadSanitizer treats mmap() as a write of all the bytes, which races with
    // the reading threads. The guard exists to allow exactly these reads.
    const long protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    const long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (::syscall(SYS_mmap, mapping + base, length, protection, flags, -1L, 0L) == -1) return false;
    is_zeros = true;
    ++losses;
    return true;
  }

  void tell() const noexcept {
    const std::uint64_t one = 1;
    if (loss_event != -1 && ::write(loss_event, &one, sizeof one) == -1) return;  // no listener
  }

  bool lose_if_shortened(std::uintptr_t mapping, bool writable) noexcept {
    struct stat status {};
    if (is_zeros || ::fstat(descriptor, &status) != 0) return false;
    const auto size = static_cast<std::uint64_t>(status.st_size);
    return size < file_bytes && lose(size, mapping, writable);
  }

  std::uint64_t lost_or_shortened_at() const noexcept {
    struct stat status {};
    if (lost_at != nothing || ::fstat(descriptor, &status) != 0) return lost_at;
    const auto size = static_cast<std::uint64_t>(status.st_size);
    return size < file_bytes ? size : nothing;
  }
};

struct Guard::Slot {
  // 0 is free; `claimed` during setup and release; `live` plus the number of running handlers.
  std::atomic<std::uint32_t> use{0};
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::size_t> length{0};  // whole pages
  // Read only by handlers that have entered.
  std::atomic<bool> writable{false};
  std::atomic<decltype(RefusedWrite::tell)> tell{nullptr};
  std::atomic<const void*> told{nullptr};
  std::atomic<Part*> parts{nullptr};  // the guard's
  std::atomic<std::size_t> part_count{0};

  std::span<Part> all_parts() const noexcept { return {parts.load(), part_count.load()}; }

  bool claim() noexcept {
    std::uint32_t free = 0;
    return use.compare_exchange_strong(free, claimed);
  }

  void give_back() noexcept {
    use.fetch_xor(live | claimed);
    while (use != claimed) ::sched_yield();
    use = 0;
  }

  bool enter() noexcept {
    std::uint32_t seen = use;
    while ((seen & live) != 0)
      if (use.compare_exchange_weak(seen, seen + 1)) return true;
    return false;
  }
  void leave() noexcept { --use; }

  // Also called by a handler that has not entered.
  bool contains(std::uintptr_t address) const noexcept {
    return address >= base && address - base < length;
  }

  Part* part_at(std::uintptr_t address) const noexcept {
    if (!contains(address)) return nullptr;
    const std::uint64_t position = address - base;
    for (Part& part : all_parts())
      if (position >= part.base && position - part.base < part.length) return &part;
    return nullptr;
  }

  bool lose(std::uintptr_t address) noexcept {
    Part* const part = part_at(address);
    return part != nullptr && part->lose(address - base - part->base, base, writable);
  }

  void tell_write(std::uintptr_t address) const noexcept {
    const auto telling = tell.load();
    if (!writable && telling != nullptr && contains(address)) telling(told, address - base);
  }

  bool lose_shortened() noexcept {
    bool any = false;
    for (Part& part : all_parts()) any = part.lose_if_shortened(base, writable) || any;
    return any;
  }
};

// A process has one SIGBUS action, and so one table.
struct Guard::Table {
  static constinit std::array<Slot, capacity> slots;
  static constinit std::atomic<std::size_t> ever_used;  // slots from the first on

  // The handler cannot wait for a release of the slot, so it enters and then checks the slot again.
  static bool lose(std::uintptr_t address) noexcept {
    for (Slot& slot : slots) {
      if (!slot.contains(address) || !slot.enter()) continue;
      const bool lost = slot.lose(address);
      slot.leave();
      if (lost) known_losses = losses;
      if (lost) return true;
    }
    return false;
  }

  // Returns false, since there is nothing to repair.
  static bool tell_write(std::uintptr_t address) noexcept {
    for (Slot& slot : slots) {
      if (!slot.contains(address) || !slot.enter()) continue;
      slot.tell_write(address);
      slot.leave();
    }
    abort_if_closed(address);
    return false;
  }
  static bool tell_nothing() noexcept { return false; }

  static void forget_handlers() noexcept;

  static bool lose_shortened() noexcept {
    bool any = false;
    for (Slot& slot : slots) {
      if (!slot.enter()) continue;
      any = slot.lose_shortened() || any;
      slot.leave();
    }
    const std::uint32_t now = losses;
    return std::exchange(known_losses, now) != now || any;
  }
};

constinit std::array<Guard::Slot, Guard::capacity> Guard::Table::slots;
constinit std::atomic<std::size_t> Guard::Table::ever_used{0};

// A handler of another thread does not continue in a forked child.
void Guard::Table::forget_handlers() noexcept {
  for (Slot& slot : slots) slot.use &= live | claimed;
}

Result<Guard> Guard::over(std::span<const std::byte> mapping, bool writable,
                          std::span<const PlacedFile> files, int loss_event,
                          RefusedWrite on_write) {
  TRY(install_fault_handler(SIGBUS, {Table::lose, Table::lose_shortened}));
  Guard guard;
  guard.parts_ = std::make_unique<Part[]>(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    guard.parts_[i].base = files[i].base;
    guard.parts_[i].length = os::whole_pages(files[i].file->size());
    guard.parts_[i].descriptor = files[i].file->descriptor();
    guard.parts_[i].loss_event = loss_event;
    guard.parts_[i].file_bytes = files[i].file->size();
  }
  TRY(guard.take_slot(mapping, writable, files.size(), on_write));
  return guard;
}

Result<Guard> Guard::against_writes(std::span<const std::byte> mapping, RefusedWrite on_write) {
  Guard guard;
  TRY(guard.take_slot(mapping, false, 0, on_write));
  return guard;
}

Result<void> Guard::watch_accesses() {
  return install_fault_handler(SIGSEGV, {Table::tell_write, Table::tell_nothing});
}

Result<void> Guard::take_slot(std::span<const std::byte> mapping, bool writable, std::size_t files,
                              RefusedWrite on_write) {
  TRY(watch_accesses());
  static const int watches_forks = ::pthread_atfork(nullptr, nullptr, Table::forget_handlers);
  if (watches_forks != 0)
    return tl::unexpected<Error>(os::os_error("see to forks of the process", watches_forks));
  for (Slot& slot : Table::slots) {
    if (!slot.claim()) continue;
    slot.base = reinterpret_cast<std::uintptr_t>(mapping.data());
    slot.length = os::whole_pages(mapping.size());
    slot.writable = writable;
    slot.tell = on_write.tell;
    slot.told = on_write.context;
    slot.parts = parts_.get();
    slot.part_count = files;
    slot.use = live;
    slot_ = &slot;
    const auto used = static_cast<std::size_t>(&slot - Table::slots.data()) + 1;
    for (std::size_t seen = Table::ever_used; seen < used;)
      if (Table::ever_used.compare_exchange_weak(seen, used)) break;
    return {};
  }
  return failure(ErrorCode::limit_exceeded,
                 "cannot guard one more mapping: " + std::to_string(capacity) +
                     " of this process are guarded, and no more can be");
}

Guard::Guard() noexcept = default;
Guard::Guard(Guard&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)), parts_(std::move(other.parts_)) {}
Guard& Guard::operator=(Guard&& other) noexcept {
  release();
  slot_ = std::exchange(other.slot_, nullptr);
  parts_ = std::move(other.parts_);
  return *this;
}
Guard::~Guard() { release(); }

bool Guard::is_active() noexcept { return fault_handler_is_first(SIGBUS); }

std::optional<std::uint64_t> Guard::lost_at(std::uint64_t base) const noexcept {
  if (slot_ == nullptr) return std::nullopt;
  finish_reads();
  for (const Part& part : slot_->all_parts())
    if (part.base == base && part.lost_at != nothing) return part.lost_at;
  return std::nullopt;
}

bool Guard::is_lost() const noexcept {
  if (slot_ == nullptr) return false;
  finish_reads();
  const std::span<const Part> parts = slot_->all_parts();
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.lost_at != nothing; });
}

Result<void> Guard::check_read(std::span<const std::byte> bytes) {
  finish_reads();
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::uint64_t at = nothing;
  for (Slot& slot : std::span(Table::slots).first(Table::ever_used)) {
    if (bytes.empty() || !slot.contains(address) || !slot.enter()) continue;
    if (const Part* const part = slot.part_at(address)) at = part->lost_or_shortened_at();
    slot.leave();
  }
  if (at == nothing) return {};
  return failure(ErrorCode::io,
                 "the file that was mapped was truncated, or could not be read, from byte " +
                     std::to_string(at) + " on");
}

void Guard::release() noexcept {
  if (slot_ != nullptr) slot_->give_back();
  slot_ = nullptr;
}

}  // namespace weightmap::mmap
