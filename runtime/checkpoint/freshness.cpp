// Compares the mapping with what was opened. Nothing here takes a lock.

#include <algorithm>
#include <array>

#include "mmap/guard.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {

bool Checkpoint::State::is_lost() const noexcept {
  const mmap::Mapping* const writable = copy_on_write.load(std::memory_order_acquire);
  return mapping.is_lost() || (writable != nullptr && writable->is_lost());
}

Result<void> Checkpoint::State::check_view_memory() const {
  if (view_memory == ViewMemory::mapped || is_in_memory()) return {};
  return about_shown(Error{ErrorCode::unsupported,
                           "only its metadata was read, so its tensors have no memory; stage or "
                           "fetch it"},
                     shown_name());
}

std::optional<std::uint64_t> Checkpoint::State::position_of(
    std::span<const std::byte> part) const noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
  if (start < base || !sources.contain(start - base, part.size())) return std::nullopt;
  return start - base;
}

namespace {

bool is_unchanged(const SourceFile& source) noexcept {
  const Result<Generation> mapped = source.file.current_generation();
  return mapped && mapped->same_content(source.file.generation());
}

bool is_at_its_path(const SourceFile& source) noexcept {
  if (source.info.path.empty() || source.remote) return is_unchanged(source);
  const Result<Generation> now = generation_at(source.info.path);
  return now && now->same_content(source.info.generation);
}

}  // namespace

bool Checkpoint::is_current() const noexcept {
  return !state_->is_lost() && (!state_->hub || sets::is_current(*state_->hub)) &&
         std::all_of(state_->sources.begin(), state_->sources.end(), is_at_its_path);
}

CheckpointState Checkpoint::state() const noexcept {
  const bool unchanged = std::all_of(state_->sources.begin(), state_->sources.end(), is_unchanged);
  // Checked last, so that it covers all reads of the mapping before this call.
  if (state_->is_lost()) return CheckpointState::lost;
  if (!unchanged) return CheckpointState::modified;
  return is_current() ? CheckpointState::current : CheckpointState::replaced;
}

bool guard_is_active() noexcept { return mmap::Guard::is_active(); }

std::string_view to_string(CheckpointState state) noexcept {
  constexpr std::array<std::string_view, 4> words = {"current", "replaced", "modified", "lost"};
  return words.at(static_cast<std::size_t>(state));
}

}  // namespace weightmap
