// The nodes that a pickle being written has met so far, and their memo ids.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/bytes/seed.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::pickle {

class WrittenNodes {
 public:
  enum class State : std::uint8_t {
    unknown,  // not met, or to be met as if for the first time
    begun,    // something within it is being written
    written,
  };
  struct Node {
    value::Cell cell;  // whose text has its address, not its position
    std::uint32_t id;  // from its PUT on
    State state;
  };
  using Number = std::uint32_t;

  // The number of the node, new or known. A reference to a node lives until the next call.
  Number meet(const value::Tree& tree, const value::Cell& cell) {
    const value::Cell key = with_address(tree, cell);
    const std::uint32_t hash = hash_of(key);
    if (nodes_.size() * 2 >= slots_.size()) grow();
    for (std::size_t at = hash;; ++at) {
      std::uint64_t& slot = slots_[at & mask_];
      if (slot == empty) {
        slot = std::uint64_t{hash} << 32 | nodes_.size();
        nodes_.push_back({key, 0, State::unknown});
        return static_cast<Number>(nodes_.size() - 1);
      }
      const auto number = static_cast<Number>(slot);
      if (slot >> 32 == hash && words_of(nodes_[number].cell) == words_of(key)) return number;
    }
  }
  Node& operator[](Number number) noexcept { return nodes_[number]; }

 private:
  using Words = std::array<std::uint64_t, 2>;
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  // as if for the last of 2^32 nodes

  static Words words_of(const value::Cell& cell) noexcept { return std::bit_cast<Words>(cell); }
  // Text is told apart by where it lies in memory, since each tree counts positions from zero.
  static value::Cell with_address(const value::Tree& tree, value::Cell cell) noexcept {
    const Value::Kind kind = kind_of(cell);
    if (kind == Value::Kind::string || kind == Value::Kind::bytes ||
        kind == Value::Kind::byte_array)
      cell.payload = reinterpret_cast<std::uintptr_t>(tree.text(cell.payload, cell.count).data());
    return cell;
  }
  std::uint32_t hash_of(const value::Cell& cell) const noexcept {
    const Words words = words_of(cell);
    std::uint64_t hash = (words[1] ^ seed_) * 0x9E3779B97F4A7C15 ^ words[0];
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
    return static_cast<std::uint32_t>(hash >> 32);
  }
  void grow() {
    std::vector<std::uint64_t> smaller = std::move(slots_);
    slots_.assign(std::max<std::size_t>(64, smaller.size() * 2), empty);
    mask_ = slots_.size() - 1;
    for (const std::uint64_t slot : smaller) {
      if (slot == empty) continue;
      std::size_t at = slot >> 32;
      while (slots_[at & mask_] != empty) ++at;
      slots_[at & mask_] = slot;
    }
  }

  std::vector<Node> nodes_;
  std::vector<std::uint64_t> slots_;  // hash, then number
  std::size_t mask_ = 0;
  std::uint64_t seed_ = bytes::fresh_seed();
};

}  // namespace weightmap::pickle
