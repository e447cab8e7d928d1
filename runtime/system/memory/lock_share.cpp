#include "runtime/system/memory/lock_share.hpp"

#include <algorithm>
#include <mutex>

namespace weightmap::os {
namespace {

// Of all shares.
struct Totals {
  std::mutex mutex;
  std::uint64_t locked = 0;
  std::uint64_t promised = 0;
};

Totals& totals() {
  static Totals* const all = new Totals;  // for what is closed while the process ends
  return *all;
}

}  // namespace

LockShare::~LockShare() {
  if (promised_ == 0) return;
  const std::lock_guard guard(totals().mutex);
  totals().locked -= locked_;
  totals().promised -= promised_;
}

std::uint64_t LockShare::promise(std::uint64_t wanted, const std::function<MemoryLimit()>& limit) {
  Totals& all = totals();
  const std::lock_guard guard(all.mutex);
  MemoryLimit free = limit();
  std::uint64_t room = MemoryLimit::unknown;
  if (free.available != MemoryLimit::unknown) {
    free.available += all.locked;
    const std::uint64_t others = all.promised - promised_;
    room = free.usable() > others ? free.usable() - others : 0;
  }
  const std::uint64_t promised = std::max(locked_, std::min(wanted, room));
  all.promised += promised - promised_;
  promised_ = promised;
  return room;
}

void LockShare::locked(std::uint64_t bytes) {
  const std::lock_guard guard(totals().mutex);
  if (bytes <= locked_) return;
  totals().locked += bytes - locked_;
  locked_ = bytes;
}

void LockShare::finish() {
  const std::lock_guard guard(totals().mutex);
  totals().promised -= promised_ - std::min(promised_, locked_);
  promised_ = std::min(promised_, locked_);
}

}  // namespace weightmap::os
