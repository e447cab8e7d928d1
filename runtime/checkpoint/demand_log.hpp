// Records the demanded tensors in the order of the first demand for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/checkpoint/tensor_table.hpp"
#include "runtime/system/process/fork_safe.hpp"

namespace weightmap {

// May be called from any thread. Takes no memory before the first demand, and then at most some 70
// bytes for each tensor of the table, however many demands follow. A forked child continues with
// the entries from before the fork, or none if another thread was just adding one.
class DemandLog {
 public:
  // Records the beginning of a demanded view in the mapping, usually without any lookup. `placed`
  // is the same in each call.
  void note(std::uint64_t position, const TensorTable& placed);

  // Returns positions of tensors in the table. An offset stands for the first tensor there.
  std::vector<std::size_t> order(const TensorTable& placed);

 private:
  // A range of positions, and the first tensor that has them.
  struct Segment {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t tensor;
  };
  struct Notes {
    std::vector<std::uint64_t> waiting;
    std::vector<Segment> segments;  // by offset, without overlaps; made when first needed, and of
                                    // late tensors each time, of those that are known by then
    std::vector<bool> seen;         // one flag for each tensor
    std::vector<std::size_t> order;

    void resolve(const TensorTable& placed);
    void add(std::uint64_t position);
  };
  static std::vector<Segment> segments_of(const TensorTable& placed);
  void resolve(const TensorTable& placed);

  // This many offsets are collected before they are resolved together.
  static constexpr std::size_t most_waiting = 1024;

  os::ForkSafe<Notes> notes_;
};

}  // namespace weightmap
