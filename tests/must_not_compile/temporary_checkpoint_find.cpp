// A view from a checkpoint that is gone at the end of the line.
#include "weightmap/checkpoint.hpp"

std::uint64_t elements() {
#ifdef WEIGHTMAP_MISUSE
  return weightmap::Checkpoint::open("model.pt").value().find("weight")->numel();
#else
  auto checkpoint = weightmap::Checkpoint::open("model.pt");
  return checkpoint.value().find("weight")->numel();
#endif
}
