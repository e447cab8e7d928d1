#include "runtime/checkpoint/demand.hpp"

#include <optional>

#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {

Result<void> demand(Checkpoint::State& state, const TensorView& view) {
  TRY(state.check_view_memory());
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const std::optional<std::uint64_t> position = state.position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  state.demand_log.note(*position, state.catalog());
  if (state.is_in_memory()) return {};
  const SourceFile& source = state.sources.at(*position);
  const std::uint64_t offset = *position - source.base();
  const mmap::MappedFile mapped = source.in(state.mapping);
  mmap::PageLoader loader(mapped, mmap::best_load_method(state.mapping));
  Result<void> loaded;
  if (mmap::is_surely_cached(mapped, offset, part.size())) {
    loaded = loader.load(offset, part.size());  // maps it, without disk access
  } else {
    const Gate::Mark mark(state.gate);
    loaded = loader.load_now(offset, part.size());
  }
  if (!loaded) loaded.error().file = source.shown_name;
  return loaded;
}

}  // namespace weightmap
