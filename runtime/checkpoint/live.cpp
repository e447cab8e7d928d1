// Whether what is mapped is still what was opened.
#include <algorithm>

#include "mmap/bus_handler.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {

std::optional<std::uint64_t> Checkpoint::State::lost_at() const noexcept {
  if (const std::optional<std::uint64_t> offset = mapping.lost_at()) return offset;
  const std::lock_guard lock(copy_on_write_mutex);
  return copy_on_write.lost_at();
}

std::optional<std::uint64_t> Checkpoint::State::offset_of(
    std::span<const std::byte> part) const noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
  if (start < base || !bytes::contains(mapping.bytes().size(), start - base, part.size()))
    return std::nullopt;
  return start - base;
}

const Generation& Checkpoint::generation() const& noexcept { return state_->generation; }

bool Checkpoint::is_current() const noexcept {
  if (state_->lost_at()) return false;
  const Result<Generation> now = state_->opened_path.empty() ? state_->file.current_generation()
                                                             : generation_at(state_->opened_path);
  const Generation& opened =
      state_->opened_path.empty() ? state_->file.generation() : state_->generation;
  return now && now->same_content(opened);
}

CheckpointState Checkpoint::state() const noexcept {
  const Result<Generation> mapped = state_->file.current_generation();
  const bool is_whole = mapped && mapped->same_content(state_->file.generation());
  // Last of what looks at the mapping, so that it counts whatever was read before this call.
  if (state_->lost_at()) return CheckpointState::lost;
  if (!is_whole) return CheckpointState::modified;
  return is_current() ? CheckpointState::current : CheckpointState::replaced;
}

Result<Checkpoint> Checkpoint::reopen() const {
  if (!state_->opened_path.empty()) return open(state_->opened_path, state_->options);
  Error error{ErrorCode::invalid_argument, "was opened by descriptor and has no path to open again",
              Error::no_offset, state_->file_name};
  return tl::unexpected<Error>(std::move(error));
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
