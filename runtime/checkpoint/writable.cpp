// Bytes of a checkpoint for writers, and for libraries that cannot express read-only memory.

#include <memory>
#include <optional>
#include <utility>

#include "mmap/memory/memory_to_fill.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "weightmap/backing.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;

Result<os::File> copy_of_memory(std::span<const std::byte> from) {
  TRY_ASSIGN(mmap::WriteOnceMemory memory,
             mmap::WriteOnceMemory::make(from.size(), "weightmap:memory"));
  TRY(os::copy_own_memory(from, memory.bytes()));
  return std::move(memory).seal();
}

Result<mmap::Mapping> map_again(const State& state) {
  mmap::MapOptions how{};
  how.sharing = Sharing::private_;
  how.writable = true;
  how.no_reserve = true;  // most of it is only read
  how.huge_pages = state.mapping.huge_pages();
  how.guard = state.info.protection == Protection::guard;
  how.loss_event = state.options.loss_event;
  if (!state.is_in_memory()) return mmap::Mapping::map(state.sources.placed(), how);
  TRY_ASSIGN(const os::File copy, copy_of_memory(state.mapping.bytes()));
  return mmap::Mapping::map(copy, how);
}

}  // namespace

Result<std::span<std::byte>> Checkpoint::writable_bytes(const TensorView& view) & {
  const State& state = *state_;
  TRY(state.check_view_memory());
  if (!state.info.writable)
    return failure(ErrorCode::invalid_argument, "the checkpoint was not opened writable");
  TRY(view.check_no_fault());
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return std::span<std::byte>{};
  const std::optional<std::uint64_t> position = state.position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  return state.mapping.writable_bytes().subspan(*position, part.size());
}

// Threads that arrive at the same time each map the file, and the first mapping is kept. This needs
// no lock that a fork() could leave locked.
Result<std::span<std::byte>> Backing::copy_on_write() const {
  State& state = *state_;
  TRY(state.check_view_memory());
  if (state.info.writable && state.info.sharing == Sharing::private_)
    return state.mapping.writable_bytes();
  if (const mmap::Mapping* const made = state.copy_on_write.load(std::memory_order_acquire))
    return made->writable_bytes();
  Result<mmap::Mapping> mapped = map_again(state);
  if (!mapped)
    return tl::unexpected<Error>(state.sources.about_position(std::move(mapped.error())));
  auto made = std::make_unique<const mmap::Mapping>(std::move(*mapped));
  const mmap::Mapping* first = nullptr;
  if (state.copy_on_write.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
    first = made.release();
  state.allow_readahead(*first, true);
  return first->writable_bytes();
}

Result<std::span<std::byte>> Backing::lend(std::uint64_t storage_bytes,
                                           std::optional<CopyOnWrite> how) const {
  const State& state = *state_;
  TRY(state.check_view_memory());
  if (state.info.writable) {
    if (how.value_or(CopyOnWrite::on) != CopyOnWrite::on)
      return failure(ErrorCode::invalid_argument,
                     "the checkpoint was opened writable, so it has no read-only memory to lend");
    return state.mapping.writable_bytes();
  }
  const CopyOnWrite chosen = how.value_or(*state.options.copy_on_write);
  const bool may_be_written =
      chosen == CopyOnWrite::small ? storage_bytes < small_storage : chosen == CopyOnWrite::on;
  if (may_be_written) return copy_on_write();
  const std::span<const std::byte> bytes = state.mapping.bytes();
  return std::span<std::byte>(const_cast<std::byte*>(bytes.data()), bytes.size());
}

}  // namespace weightmap
