// The nodes that the writer has met so far, and their memo ids.
//
// Nodes are found by address. Each 4 KiB of memory with nodes has a block of numbers, one for each
// 16 bytes, which begins the chain of the nodes there. A tree is visited roughly in memory order,
// so accesses here are in memory order, too. A chain is no longer than the few nodes that fit into
// 16 bytes, whatever a file contains.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/bytes/seed.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::pickle {

class WrittenNodes {
 public:
  using Number = std::uint32_t;
  // Sentinels in place of a memo id; a pickle below 4 GiB has far fewer ids.
  static constexpr std::uint32_t unknown = 0xFFFFFFFF;  // not met, or to be written again
  static constexpr std::uint32_t begun = 0xFFFFFFFE;    // its contents are being written

  // Returns the number of the node; a new node has the id unknown.
  Number meet(const value::Tree& tree, const value::Cell& cell) {
    const value::Cell key = with_address(tree, cell);
    Number& first = chain_of(key.payload);
    for (Number number = first; number != none; number = node(number).next)
      if (words_of(node(number).cell) == words_of(key)) return number;
    if (count_ % segment_nodes == 0)
      segments_.push_back(std::make_unique_for_overwrite<Node[]>(segment_nodes));
    node(count_) = {key, unknown, first};
    return first = count_++;
  }
  // The memo id of the node, or one of the above.
  std::uint32_t& id(Number number) noexcept { return node(number).id; }

 private:
  struct Node {
    value::Cell cell;  // with_address()
    std::uint32_t id;
    Number next;  // of the chain
  };
  struct Block {
    std::uint64_t page = no_page;
    std::uint64_t number = 0;
  };
  static constexpr Number none = 0xFFFFFFFF;
  static constexpr Number segment_nodes = 4096;
  static constexpr std::uint64_t page_bytes = 4096;
  static constexpr std::uint64_t chain_bytes = 16;
  static constexpr std::uint64_t no_page = ~std::uint64_t{0};

  Node& node(Number number) noexcept {
    return segments_[number / segment_nodes][number % segment_nodes];
  }
  static std::array<std::uint64_t, 2> words_of(const value::Cell& cell) noexcept {
    return std::bit_cast<std::array<std::uint64_t, 2>>(cell);
  }
  // Text is identified by its memory address, since each tree counts positions from zero.
  static value::Cell with_address(const value::Tree& tree, value::Cell cell) noexcept {
    const Value::Kind kind = kind_of(cell);
    if (kind == Value::Kind::string || kind == Value::Kind::bytes ||
        kind == Value::Kind::byte_array)
      cell.payload = reinterpret_cast<std::uintptr_t>(tree.text(cell.payload, cell.count).data());
    return cell;
  }

  Number& chain_of(std::uint64_t address) {
    const std::uint64_t block = block_of(address / page_bytes);
    return chains_[block * (page_bytes / chain_bytes) + address % page_bytes / chain_bytes];
  }
  // Texts and calls lie in separate memory, and each is visited in order.
  std::uint64_t block_of(std::uint64_t page) {
    Block& last = last_blocks_[page % last_blocks_.size()];
    if (last.page != page) last = {page, new_or_known_block(page)};
    return last.number;
  }
  std::uint64_t new_or_known_block(std::uint64_t page) {
    if (blocks_.size() <= 2 * block_count_) grow();
    Block& block = place_of(page);
    if (block.page != page) {
      block = {page, block_count_++};
      chains_.resize(block_count_ * (page_bytes / chain_bytes), none);
    }
    return block.number;
  }
  Block& place_of(std::uint64_t page) noexcept {
    std::uint64_t at = (page ^ seed_) * 0x9E3779B97F4A7C15;
    at = (at ^ at >> 32) * 0xD6E8FEB86659FD93 >> 32;
    for (;; ++at) {
      Block& block = blocks_[at & (blocks_.size() - 1)];
      if (block.page == page || block.page == no_page) return block;
    }
  }
  void grow() {
    const std::vector<Block> smaller =
        std::exchange(blocks_, std::vector<Block>(std::max<std::size_t>(64, blocks_.size() * 2)));
    for (const Block& block : smaller)
      if (block.page != no_page) place_of(block.page) = block;
  }

  std::vector<std::unique_ptr<Node[]>> segments_;  // arrays whose nodes never move
  Number count_ = 0;
  std::vector<Number> chains_;
  std::vector<Block> blocks_;  // a power of two, by a hash of the page
  std::uint64_t block_count_ = 0;
  std::array<Block, 16> last_blocks_;  // by the page
  std::uint64_t seed_ = bytes::fresh_seed();
};

}  // namespace weightmap::pickle
