#include "runtime/checkpoint/copy_to.hpp"

#include <algorithm>
#include <string>

#include "mmap/memory/own_memory.hpp"
#include "runtime/bytes/escape.hpp"

namespace weightmap {
namespace {

using State = Checkpoint::State;

// `tensor "norm.weight": `, of the first tensor that has this byte; empty if none has.
std::string tensor_at_offset(State& state, std::uint64_t offset) {
  const Result<const catalog::Catalog*> catalog = state.catalogs.whole();
  if (!catalog) return {};
  for (const catalog::Entry& entry : (*catalog)->entries())
    if (offset >= entry.file_offset && offset - entry.file_offset < entry.extent)
      return "tensor " + bytes::quote((*catalog)->name(entry)) + ": ";
  return {};
}

// What was written to private memory is in no file.
bool is_private_memory(const CheckpointInfo& info) noexcept {
  return info.writable && info.sharing == Sharing::private_;
}

Result<void> copy_range(const State& state, std::uint64_t offset, std::span<std::byte> out) {
  if (!is_private_memory(state.info)) return state.file.read(offset, out);
  Result<void> copied = os::copy_own_memory(state.mapping.bytes().subspan(offset, out.size()), out);
  if (!copied && copied.error().file_offset != Error::no_offset)
    copied.error().file_offset += offset;
  return copied;
}

// Whether the file was what it is now for as long as it was copied.
Result<void> check_same(const State& state, std::uint64_t offset) {
  if (Result<void> ok = state.mapping.check_not_lost(); !ok) return ok;
  const bool writes_reach_file = state.info.writable && !is_private_memory(state.info);
  if (writes_reach_file) return {};
  Result<void> ok = state.file.check_unchanged();
  if (!ok) ok.error().file_offset = offset;
  return ok;
}

}  // namespace

Result<void> copy_to(State& state, const TensorView& view, std::span<std::byte> out) {
  const std::span<const std::byte> part = view.bytes();
  if (out.size() != part.size())
    return failure(ErrorCode::invalid_argument, "the buffer has " + std::to_string(out.size()) +
                                                    " bytes, the view lies in " +
                                                    std::to_string(part.size()));
  if (part.empty()) return {};
  const std::optional<std::uint64_t> offset = state.position_of(part);
  if (!offset)
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  Result<void> copied = copy_range(state, *offset, out);
  if (copied) copied = check_same(state, *offset);
  if (copied) return copied;
  Error error = copied.error();
  error.file = state.shown_name;
  error.message.insert(0, tensor_at_offset(state, *offset));
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap
