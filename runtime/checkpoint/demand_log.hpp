// Which tensors were demanded, in the order of the first demand for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "mmap/process/fork_safe.hpp"
#include "runtime/catalog/catalog.hpp"

namespace weightmap {

// Safe to call from any thread. Takes no memory before the first demand, and then at most some 70
// bytes for each tensor of the catalog, whatever is noted. A forked child goes on with what was
// noted before the fork, or from nothing if another thread of the parent was just noting something.
class DemandLog {
 public:
  // `catalog` is asked for when offsets are resolved; what it answers must outlive the log.
  // nullptr: there is none, and nothing is remembered.
  explicit DemandLog(std::function<const catalog::Catalog*()> catalog)
      : catalog_(std::move(catalog)) {}

  // Where a demanded view begins in the mapping. As a rule this only writes it down.
  void note(std::uint64_t position);

  // Positions of tensors in the catalog. An offset stands for the first tensor that has this byte.
  std::vector<std::size_t> order();

 private:
  // Positions of bytes, and the first tensor that has them.
  struct Piece {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t tensor;
  };
  struct Notes {
    std::vector<std::uint64_t> waiting;
    std::vector<Piece> pieces;  // by offset, none overlap; made when first needed
    std::vector<bool> seen;     // of each tensor
    std::vector<std::size_t> order;

    void resolve(const catalog::Catalog& catalog);
    void add(std::uint64_t position);
  };
  static std::vector<Piece> pieces_of(const catalog::Catalog& catalog);
  void resolve();

  // So many offsets wait until they are resolved together.
  static constexpr std::size_t most_waiting = 1024;

  const std::function<const catalog::Catalog*()> catalog_;
  os::ForkSafe<Notes> notes_;
};

}  // namespace weightmap
