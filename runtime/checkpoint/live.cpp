#include "runtime/checkpoint/live.hpp"

#include "mmap/bus_handler.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/checked.hpp"

namespace weightmap {

using State = Checkpoint::State;

std::optional<std::uint64_t> State::lost_at() const noexcept {
  if (const std::optional<std::uint64_t> position = mapping.lost_at()) return position;
  const os::Mapping* const writable = copy_on_write.load(std::memory_order_acquire);
  return writable ? writable->lost_at() : std::nullopt;
}

std::optional<std::uint64_t> State::position_of(std::span<const std::byte> part) const noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
  if (start < base || !bytes::contains(mapping.bytes().size(), start - base, part.size()))
    return std::nullopt;
  return start - base;
}

bool is_current(const State& state) noexcept {
  if (state.lost_at()) return false;
  const bool has_path = !state.source.path.empty();
  const Result<Generation> now =
      has_path ? generation_at(state.source.path) : state.file.current_generation();
  return now && now->same_content(has_path ? state.source.generation : state.file.generation());
}

CheckpointState state_of(const State& state) noexcept {
  const Result<Generation> mapped = state.file.current_generation();
  // Last of what looks at the mapping, so that it counts whatever was read before this call.
  if (state.lost_at()) return CheckpointState::lost;
  if (!mapped || !mapped->same_content(state.file.generation())) return CheckpointState::modified;
  return is_current(state) ? CheckpointState::current : CheckpointState::replaced;
}

Result<Checkpoint> reopen(const State& state) {
  if (!state.source.path.empty()) return Checkpoint::open(state.source.path, state.options);
  return about_shown(Error{ErrorCode::invalid_argument,
                           "was opened by descriptor and has no path to open again",
                           Error::no_offset,
                           {}},
                     state.shown_name);
}

bool guard_is_active() noexcept { return os::bus_handler_is_first(); }

std::string_view to_string(CheckpointState state) noexcept {
  switch (state) {
    case CheckpointState::current:
      return "current";
    case CheckpointState::replaced:
      return "replaced";
    case CheckpointState::modified:
      return "modified";
    case CheckpointState::lost:
      return "lost";
  }
  return "unknown";
}

}  // namespace weightmap
