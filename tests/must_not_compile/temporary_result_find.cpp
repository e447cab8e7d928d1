// A view from a checkpoint that is gone at the end of the line, reached through its Result.
#include "weightmap/checkpoint.hpp"

std::uint64_t elements() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt")->find("weight")->numel();
#else
  const auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint->find("weight")->numel();
#endif
}
