#include "mmap/guard.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "mmap/bus_handler.hpp"
#include "mmap/file.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"

namespace weightmap::os {
namespace {

constexpr std::uint32_t live = std::uint32_t{1} << 31;
constexpr std::uint32_t claimed = std::uint32_t{1} << 30;
constexpr std::uint64_t nothing = ~std::uint64_t{0};

// How often zeros were put in the place of a mapping, and how much of that this thread knows. A
// signal that was raised without an address may be about a loss that another thread has repaired
// meanwhile: the first one after each loss is taken for that. Initial exec: another kind of
// variable could be allocated at its first use, which is in a signal handler.
constinit std::atomic<std::uint32_t> losses{0};
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t known_losses = 0;

}  // namespace

// What the handler does is async-signal-safe: lock-free atomics, fstat() and mmap(), which is a
// plain system call although POSIX does not list it.
struct Guard::Slot {
  // 0 is free; `claimed` while it is filled in or given back; `live` plus the handlers at work.
  std::atomic<std::uint32_t> use{0};
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::size_t> length{0};  // whole pages
  std::atomic<bool> writable{false};
  std::atomic<int> descriptor{-1};
  std::atomic<std::uint64_t> file_bytes{0};
  std::atomic<std::uint64_t> lost_at{nothing};
  std::atomic<bool> is_zeros{false};

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

  bool contains(std::uintptr_t address) const noexcept {
    return address >= base && address - base < length;
  }

  // Marked before the zeros can be seen. All of the mapping, since otherwise each of its pages
  // could cost one more fault and one more entry in the table of mappings.
  bool lose(std::uint64_t offset) noexcept {
    std::uint64_t none = nothing;
    lost_at.compare_exchange_strong(none, offset);
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (::mmap(reinterpret_cast<void*>(base.load()), length, protection,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
      return false;
    is_zeros = true;
    ++losses;
    return true;
  }

  bool lose_if_shortened() noexcept {
    struct stat status {};
    if (is_zeros || ::fstat(descriptor, &status) != 0) return false;
    const auto size = static_cast<std::uint64_t>(status.st_size);
    return size < file_bytes && lose(size);
  }
};

// There is one SIGBUS action in a process, and so one table.
struct Guard::Table {
  static constinit std::array<Slot, capacity> slots;

  // The handler may be in a thread that cannot wait for whoever gives a slot back, so it says first
  // that it is there and then looks again.
  static bool lose(std::uintptr_t address) noexcept {
    for (Slot& slot : slots) {
      if (!slot.contains(address) || !slot.enter()) continue;
      const bool lost = slot.contains(address) && slot.lose(address - slot.base);
      slot.leave();
      if (lost) known_losses = losses;
      if (lost) return true;
    }
    return false;
  }

  static void forget_handlers() noexcept;

  static bool lose_shortened() noexcept {
    bool any = false;
    for (Slot& slot : slots) {
      if (!slot.enter()) continue;
      any = slot.lose_if_shortened() || any;
      slot.leave();
    }
    const std::uint32_t now = losses;
    return std::exchange(known_losses, now) != now || any;
  }
};

constinit std::array<Guard::Slot, Guard::capacity> Guard::Table::slots;

// A handler that was at work in another thread does not go on in a forked child.
void Guard::Table::forget_handlers() noexcept {
  for (Slot& slot : slots) slot.use &= live | claimed;
}

Result<Guard> Guard::over(std::span<const std::byte> mapping, bool writable, const File& file) {
  if (Result<void> ok = install_bus_handler({Table::lose, Table::lose_shortened}); !ok)
    return tl::unexpected<Error>(ok.error());
  static const int watches_forks = ::pthread_atfork(nullptr, nullptr, Table::forget_handlers);
  if (watches_forks != 0)
    return tl::unexpected<Error>(os_error("see to forks of the process", watches_forks));
  const std::size_t page = page_bytes();
  for (Slot& slot : Table::slots) {
    if (!slot.claim()) continue;
    slot.base = reinterpret_cast<std::uintptr_t>(mapping.data());
    slot.length = (mapping.size() + page - 1) / page * page;
    slot.writable = writable;
    slot.descriptor = file.descriptor();
    slot.file_bytes = file.size();
    slot.lost_at = nothing;
    slot.is_zeros = false;
    slot.use = live;
    return Guard(&slot);
  }
  return failure(ErrorCode::limit_exceeded,
                 "cannot guard one more mapping: " + std::to_string(capacity) +
                     " of this process are guarded, and no more can be");
}

std::optional<std::uint64_t> Guard::lost_at() const noexcept {
  if (slot_ == nullptr) return std::nullopt;
  const std::uint64_t offset = slot_->lost_at;
  return offset == nothing ? std::nullopt : std::optional(offset);
}

void Guard::release() noexcept {
  if (slot_ != nullptr) slot_->give_back();
  slot_ = nullptr;
}

}  // namespace weightmap::os
