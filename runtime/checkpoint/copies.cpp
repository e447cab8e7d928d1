#include "runtime/checkpoint/copies.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "mmap/page_loader.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/strided_blocks.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;

// Returns `tensor "norm.weight": ` for the first tensor that has this byte; empty if none has.
std::string tensor_at_position(const State& state, std::uint64_t position) {
  const std::optional<std::size_t> index = state.tensors.find_at(position);
  return index ? "tensor " + bytes::quote(state.listed().name(*index)) + ": " : std::string();
}

// Writes to private memory are in no file.
bool is_private_memory(const CheckpointInfo& info) noexcept {
  return info.writable && info.sharing == Sharing::private_;
}

// Errors of both include the offset in the file.
Result<void> copy_range(const State& state, const SourceFile& source, std::uint64_t offset,
                        std::span<std::byte> out) {
  if (!is_private_memory(state.info)) return source.file.read(offset, out);
  const auto part = state.mapping.bytes().subspan(source.base() + offset, out.size());
  Result<void> copied = os::copy_own_memory(part, out);
  if (!copied && copied.error().file_offset != Error::no_offset)
    copied.error().file_offset += offset;
  return copied;
}

// Needs the memory of one block only, however far apart the elements lie.
Result<void> gather_blocks(const State& state, const TensorView& view, const SourceFile& source,
                           std::uint64_t offset, std::span<std::byte> out) {
  std::vector<std::byte> memory;
  for (StridedBlocks blocks(view); !blocks.done(); blocks.advance()) {
    memory.resize(blocks.bytes());
    TRY(copy_range(state, source, offset + blocks.offset(), memory));
    const TensorView part = blocks.view_of(memory);
    TRY(part.gather(out.first(part.nbytes())));
    out = out.subspan(part.nbytes());
  }
  return {};
}

// Fails if the file may have changed during the copy.
Result<void> check_same(const State& state, const SourceFile& source, std::uint64_t offset) {
  TRY(source.in(state.mapping).check_not_lost());
  const bool writes_reach_file = state.info.writable && !is_private_memory(state.info);
  if (writes_reach_file) return {};
  Result<void> ok = source.file.check_unchanged();
  if (!ok) ok.error().file_offset = offset;
  return ok;
}

// Calls copy(source, offset) for the place of `part`; errors name the tensor and the file.
template <class Copy>
Result<void> copy_safely(State& state, std::span<const std::byte> part, const Copy& copy) {
  if (part.empty()) return {};
  const std::optional<std::uint64_t> position = state.position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  const SourceFile& source = state.sources.at(*position);
  const std::uint64_t offset = *position - source.base();
  Result<void> copied = copy(source, offset);
  if (copied) copied = check_same(state, source, offset);
  if (copied) return copied;
  Error error = source.about(std::move(copied.error()));
  error.message.insert(0, tensor_at_position(state, *position));
  return tl::unexpected<Error>(std::move(error));
}

Result<void> copy_bytes(State& state, const TensorView& view, std::span<std::byte> out) {
  TRY(view.check_no_fault());
  const std::span<const std::byte> part = view.bytes();
  if (out.size() != part.size())
    return failure(ErrorCode::invalid_argument, "the buffer has " + std::to_string(out.size()) +
                                                    " bytes, the view lies in " +
                                                    std::to_string(part.size()));
  return copy_safely(state, part, [&](const SourceFile& source, std::uint64_t offset) {
    return copy_range(state, source, offset, out);
  });
}

}  // namespace

Result<void> gather(State& state, const TensorView& view, std::span<std::byte> out) {
  TRY(view.check_gather(out.size()));
  const bool as_stored = view.is_contiguous() && !view.is_foreign_byte_order();
  if (as_stored) return copy_bytes(state, view, out);
  if (is_blocked(view.dtype())) {
    TRY_ASSIGN(const TensorSlice bytes, view.bits());
    return gather(state, bytes, out);
  }
  const auto copy = [&](const SourceFile& source, std::uint64_t offset) {
    return gather_blocks(state, view, source, offset, out);
  };
  return copy_safely(state, view.stored_bytes(), copy);
}

Result<void> check_unchanged(State& state, const TensorView& view) {
  TRY(view.check_no_fault());
  TRY(state.check_view_memory());
  const auto read_already = [](const SourceFile&, std::uint64_t) { return Result<void>(); };
  return copy_safely(state, view.stored_bytes(), read_already);
}

Result<void> check_unchanged(const Checkpoint& checkpoint, const TensorView& view) {
  return check_unchanged(Checkpoint::Access::state(checkpoint), view);
}

Result<void> demand(State& state, const TensorView& view) {
  TRY(state.check_view_memory());
  TRY(view.check_no_fault());
  const std::span<const std::byte> part = view.bytes();
  if (part.empty()) return {};
  const std::optional<std::uint64_t> position = state.position_of(part);
  if (!position)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  state.demand_log.note(*position, state.tensors);
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

std::string start_of_error(State& state, std::span<const std::byte> part) {
  const std::optional<std::uint64_t> position = state.position_of(part);
  return position ? tensor_at_position(state, *position) : std::string();
}

Result<void> Checkpoint::gather(const TensorView& view, std::span<std::byte> out) const {
  return weightmap::gather(*state_, view, out);
}
Result<void> Checkpoint::demand(const TensorView& view) const {
  return weightmap::demand(*state_, view);
}
Result<void> Backing::copy_bytes(const TensorView& view, std::span<std::byte> out) const {
  return weightmap::copy_bytes(*state_, view, out);
}

}  // namespace weightmap
