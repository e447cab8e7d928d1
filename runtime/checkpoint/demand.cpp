// Tensors that somebody waits for.
#include <optional>

#include "mmap/fill.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {

Result<void> Checkpoint::demand(const TensorView& view) const {
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const std::optional<std::uint64_t> position = state_->position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  state_->demand_log.note(*position);
  const SourceFile& source = state_->sources.at(*position);
  const std::uint64_t offset = *position - source.base();
  os::Filler filler(source.in(state_->mapping), os::best_fill_method(state_->mapping));
  Result<void> filled;
  if (os::is_surely_cached(source.file, offset, part.size())) {
    filled = filler.fill(offset, part.size());  // maps it, and needs no disk
  } else {
    const Gate::Mark mark(state_->gate);
    filled = filler.fill_now(offset, part.size());
  }
  if (!filled) filled.error().file = source.shown_name;
  return filled;
}

std::vector<std::size_t> Checkpoint::demand_order() const { return state_->demand_log.order(); }

}  // namespace weightmap
