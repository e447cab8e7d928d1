// Runs of opcodes that came before, to recognise the next tensor of a known type and shape by
// comparing bytes.
//
// Two runs for one shape (packed_match.cpp) differ in the name, the storage's key, the memo ids of
// their PUTs and requires_grad. A CallTemplate is the rest, in two pieces: the head, from the GET
// of the callable to the opcode of the key, and the tail behind the key's text. Which one comes
// next is predicted from those that came last, since models repeat their blocks, so that the
// processor need not wait for the bytes; else a hash of the bytes that tell shapes apart finds it,
// in any order.
//
// Only for runs that write their key and have memo ids of four bytes, as nearly all have after the
// first thirty tensors. Operands are read as little-endian: see parse().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "runtime/bytes/arena.hpp"
#include "runtime/pickle/opcode.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::pickle {

constexpr std::uint32_t max_packed_key_bytes = 64;

// Some bytes of a run and which of their bits have to be the same.
template <std::size_t words>
struct MaskedBytes {
  static constexpr std::size_t size = words * sizeof(std::uint64_t);
  std::array<std::uint64_t, words> bytes;
  std::array<std::uint64_t, words> mask;

  // Reads `size` bytes.
  std::uint64_t differences(const unsigned char* at) const noexcept {
    std::uint64_t differences = 0;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, at + i * sizeof word, sizeof word);
      differences |= (word ^ bytes[i]) & mask[i];
    }
    return differences;
  }
};

// A run that was taken apart.
struct ScannedRun {
  using Byte = unsigned char;
  const Byte* head;
  const Byte* key;   // its text
  const Byte* tail;  // the PUT of the key, with an id of four bytes
  const Byte* id_put;
  const Byte* strides;
  const Byte* flag;  // requires_grad
  const Byte* end;
};

struct CallTemplate {
  using Byte = unsigned char;
  static constexpr std::size_t max_puts = 7;  // key, id, sizes, strides, hooks, arguments, result

  MaskedBytes<3> head;
  MaskedBytes<12> tail;
  const value::PackedShape* shape;
  std::uint64_t hash;
  std::uint16_t number;  // among the templates, from 1 on
  std::uint8_t head_size;
  std::uint8_t tail_size;
  std::uint8_t flag_at;  // of requires_grad in the tail
  std::uint8_t put_count;
  std::array<std::uint8_t, max_puts> put_at;  // of the PUTs' ids in the tail

  // Made of a run whose PUTs have ids of four bytes; without hash and number. nullopt if the tail
  // is too long.
  static std::optional<CallTemplate> of(const ScannedRun& run, const value::PackedShape& shape);

  // True if the pieces are those of a run for this shape whose PUTs have ids from `id` on.
  bool matches(const Byte* head_at, const Byte* tail_at, std::uint32_t id) const noexcept {
    std::uint64_t differences = head.differences(head_at) | tail.differences(tail_at);
    for (std::uint32_t i = 0; i < put_count; ++i) {
      std::uint32_t found;
      std::memcpy(&found, tail_at + put_at[i], sizeof found);
      differences |= found ^ (id + i);
    }
    return differences == 0;
  }
};

class CallTemplates {
 public:
  using Byte = unsigned char;

  explicit CallTemplates(bytes::Arena& arena) noexcept : arena_(&arena) { templates_[0] = nullptr; }

  // Shapes of which there are so many do not repeat: templates are of no use any more.
  bool is_full() const noexcept { return count_ == max_templates; }
  // What the next run may be, or nullptr.
  const CallTemplate* expected() const noexcept {
    return confidence_ < 0 ? nullptr : next_[place()];
  }
  // What the run at `head` may be by its bytes, or nullptr. As many bytes follow as the longest run
  // has: nothing checks bounds.
  const CallTemplate* find(const Byte* head) const noexcept;
  // This one came.
  void note(const CallTemplate& came) noexcept {
    const CallTemplate*& next = next_[place()];
    // A comparison in vain costs about half of what one that succeeds saves.
    confidence_ = next == &came ? std::min(confidence_ + 2, 8) : std::max(confidence_ - 1, -8);
    next = &came;
    history_ = history_ << 5 ^ came.number;
  }
  // A run for this shape that equals no template.
  void add(const ScannedRun& run, const value::PackedShape& shape);

 private:
  static constexpr std::size_t max_templates = 1024;
  static constexpr std::size_t no_slot = 2 * max_templates;
  // 0 if no template can equal the run.
  static std::uint64_t hash_of(const Byte* head) noexcept;
  static std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
    return (hash ^ word) * 0x9E3779B97F4A7C15;
  }
  // The slot of the hash, or a free one for it, or the last one, which stays empty: a few steps are
  // enough unless somebody chose the shapes to collide.
  std::size_t slot_of(std::uint64_t hash) const noexcept {
    const std::size_t first = hash >> 53;
    for (std::size_t step = 0; step < 16; ++step) {
      const std::size_t slot = (first + step) % no_slot;
      if (numbers_[slot] == 0 || templates_[numbers_[slot]]->hash == hash) return slot;
    }
    return no_slot;
  }
  std::size_t place() const noexcept { return mix(history_, 0) >> 56; }

  bytes::Arena* arena_;
  std::array<std::uint16_t, no_slot + 1> numbers_{};        // 0: free
  std::array<CallTemplate*, max_templates + 1> templates_;  // by number
  std::uint16_t count_ = 0;
  std::array<const CallTemplate*, 256> next_{};  // by a hash of the last twelve
  std::uint64_t history_ = 0;
  int confidence_ = 0;
};

inline std::uint64_t CallTemplates::hash_of(const Byte* head) noexcept {
  const auto load = [](const Byte* from, unsigned bytes) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word & (~std::uint64_t{0} >> (64 - 8 * bytes));
  };
  const auto behind_get = [](const Byte* at) { return at + (*at == op_BINGET ? 2 : 5); };
  const Byte* key = behind_get(behind_get(behind_get(head) + 2));  // callable, marks, tag, type
  std::uint32_t key_length;
  std::memcpy(&key_length, key + 1, sizeof key_length);
  if (*key != op_BINUNICODE || key_length > max_packed_key_bytes) return 0;
  const Byte* const numel = behind_get(key + 5 + key_length + 5);  // PUT, location
  // Bytes of operand of BININT, BININT1 and BININT2.
  static_assert(op_BININT == 'J' && op_BININT1 == 'K' && op_BININT2 == 'M');
  constexpr std::array<Byte, 4> widths{4, 1, 0, 2};
  const unsigned index = *numel - unsigned{op_BININT};
  if (index >= widths.size() || widths[index] == 0) return 0;
  const unsigned width = widths[index];
  // Behind it TUPLE, PUT and BINPERSID, then the offset and the first size.
  return mix(mix(load(head, 8), load(numel + 1, width)), load(numel + 1 + width + 7, 6));
}

inline const CallTemplate* CallTemplates::find(const Byte* head) const noexcept {
  return templates_[numbers_[slot_of(hash_of(head))]];
}

}  // namespace weightmap::pickle
