#include "runtime/base/bytes/arena.hpp"

#include <algorithm>

namespace weightmap::bytes {

void* Arena::allocate_from_new_chunk(std::size_t size) {
  // The last chunk may be smaller than usual, to use up the budget.
  const std::uint64_t chunk = std::min<std::uint64_t>(std::max(size, chunk_bytes_), budget_);
  if (chunk < size) return nullptr;
  chunks_.emplace_back(static_cast<std::size_t>(chunk), *memory_);
  budget_ -= chunk;
  next_ = chunks_.back().data() + size;
  left_ = static_cast<std::size_t>(chunk) - size;
  return chunks_.back().data();
}

}  // namespace weightmap::bytes
