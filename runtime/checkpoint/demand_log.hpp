// Which tensors were demanded, in the order of the first demand for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/catalog/catalog.hpp"
#include "runtime/os/process/fork_safe.hpp"

namespace weightmap {

// Safe to call from any thread. Takes no memory before the first demand, and then at most some 70
// bytes for each tensor of the catalog, whatever is noted. A forked child goes on with what was
// noted before the fork, or from nothing if another thread of the parent was just noting something.
class DemandLog {
 public:
  // Where a demanded view begins in the mapping. As a rule this only writes it down. `catalog`: the
  // same in each call.
  void note(std::uint64_t position, const catalog::Catalog& catalog);

  // Positions of tensors in the catalog. An offset stands for the first tensor that has this byte.
  std::vector<std::size_t> order(const catalog::Catalog& catalog);

 private:
  // Positions of bytes, and the first tensor that has them.
  struct Segment {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t tensor;
  };
  struct Notes {
    std::vector<std::uint64_t> waiting;
    std::vector<Segment> segments;  // by offset, none overlap; made when first needed
    std::vector<bool> seen;         // of each tensor
    std::vector<std::size_t> order;

    void resolve(const catalog::Catalog& catalog);
    void add(std::uint64_t position);
  };
  static std::vector<Segment> segments_of(const catalog::Catalog& catalog);
  void resolve(const catalog::Catalog& catalog);

  // So many offsets wait until they are resolved together.
  static constexpr std::size_t most_waiting = 1024;

  os::ForkSafe<Notes> notes_;
};

}  // namespace weightmap
