#include "runtime/checkpoint/demand.hpp"

#include <optional>

#include "mmap/fill.hpp"
#include "mmap/pages/page_cache.hpp"

namespace weightmap {

Result<void> demand(Checkpoint::State& state, const TensorView& view) {
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const std::optional<std::uint64_t> position = state.position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  state.demand_log.note(*position, state.catalog());
  const SourceFile& source = state.sources.at(*position);
  const std::uint64_t offset = *position - source.base();
  os::Filler filler(source.in(state.mapping), os::best_fill_method(state.mapping));
  Result<void> filled;
  if (os::is_surely_cached(source.file, offset, part.size())) {
    filled = filler.fill(offset, part.size());  // maps it, without disk access
  } else {
    const Gate::Mark mark(state.gate);
    filled = filler.fill_now(offset, part.size());
  }
  if (!filled) filled.error().file = source.shown_name;
  return filled;
}

}  // namespace weightmap
