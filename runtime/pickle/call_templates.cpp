#include "runtime/pickle/call_templates.hpp"

#include "runtime/pickle/opcode.hpp"

namespace weightmap::pickle {
namespace {

using Byte = unsigned char;

// Takes the bytes from `first` to `last`, all of which count, and answers how many.
template <std::size_t words>
std::uint8_t fill(MaskedBytes<words>& piece, const Byte* first, const Byte* last) noexcept {
  piece = {};
  const auto size = static_cast<std::uint8_t>(last - first);
  std::memcpy(piece.bytes.data(), first, size);
  std::memset(piece.mask.data(), 0xFF, size);
  return size;
}

}  // namespace

std::optional<CallTemplate> CallTemplate::of(const ScannedRun& run,
                                             const value::PackedShape& shape) {
  if (run.end - run.tail > std::ptrdiff_t{decltype(tail)::size}) return std::nullopt;
  CallTemplate made{};
  made.shape = &shape;
  made.head_size = fill(made.head, run.head, run.key - sizeof(std::uint32_t));
  made.tail_size = fill(made.tail, run.tail, run.end);
  const auto place = [&](const Byte* at) { return static_cast<std::uint8_t>(at - run.tail); };
  auto* const mask = reinterpret_cast<Byte*>(made.tail.mask.data());
  static_assert((op_NEWTRUE ^ op_NEWFALSE) == 1);
  made.flag_at = place(run.flag);
  mask[made.flag_at] = 0xFE;
  const auto put = [&](const Byte* at) {
    made.put_at[made.put_count++] = place(at + 1);
    std::memset(mask + place(at + 1), 0, sizeof(std::uint32_t));
  };
  // A PUT has five bytes, those of the hooks and what follows them stand at the end.
  const Byte* const hooks = run.flag + 1 + (run.flag[1] == op_BINGET ? 2 : 5) + 2;
  put(run.tail);
  put(run.id_put);
  if (shape.size_count > 0) put(run.strides - 5);
  if (shape.stride_count > 0) put(run.flag - 5);
  put(hooks);
  put(run.end - 11);
  put(run.end - 5);
  return made;
}

void CallTemplates::add(const ScannedRun& run, const value::PackedShape& shape) {
  if (is_full()) return;
  const std::uint64_t hash = hash_of(run.head);
  const std::size_t slot = slot_of(hash);
  // Of two shapes that look the same, the first one has it.
  if (hash == 0 || slot == no_slot || numbers_[slot] != 0) return;
  const std::optional<CallTemplate> made = CallTemplate::of(run, shape);
  auto* const kept = made ? arena_->allocate<CallTemplate>() : nullptr;
  if (kept == nullptr) return;
  *kept = *made;
  kept->hash = hash;
  kept->number = ++count_;
  numbers_[slot] = count_;
  templates_[count_] = kept;
}

}  // namespace weightmap::pickle
